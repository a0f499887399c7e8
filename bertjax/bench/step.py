"""python -m bertjax.bench step: the compiled train step (forward, backward, clip, optimizer).

  python -m bertjax.bench step --config=configs/bert.py:base --batch_size=8 --length=128 \
      --against=transformers

The batch is made-up text in the recipe's own rows; dropout is on. Rates count all positions of the
rows, padding too. `state_bytes` are the parameters' and the optimizer's. With --against the same
model, batch and optimizer run in PyTorch in alternation; `ratio` is our tokens/s over theirs.
"""

import json
import sys
from typing import Any

import jax
import numpy as np
from absl import app, flags
from ml_collections import config_flags

from bertjax.bench import own_step, timing
from bertjax.bench.synthetic import synthetic_batch

_CONFIG = config_flags.DEFINE_config_file('config', None, 'Config file, e.g. configs/bert.py:base.')
_BATCH_SIZE = flags.DEFINE_integer('batch_size', 8, 'Rows per step.', lower_bound=1)
_LENGTH = flags.DEFINE_integer('length', 128, 'Tokens per row.', lower_bound=8)
_AGAINST = flags.DEFINE_enum('against', None, ['transformers'], 'Also time this rival.')
_CALLS = flags.DEFINE_integer('calls', 20, 'Timed calls of each side.', lower_bound=1)
_WARMUP = flags.DEFINE_integer('warmup', 3, 'Discarded calls of each side.', lower_bound=3)
flags.mark_flag_as_required('config')


def main(argv: list[str]) -> None:
  """Times the step and prints one JSON line."""
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments: {" ".join(argv[1:])}')
  config = own_step.sized(_CONFIG.value, _BATCH_SIZE.value, _LENGTH.value)
  batch = synthetic_batch(config)
  note = ''
  arms = dict(ours=own_step.make_step(config, batch))
  if _AGAINST.value:
    from bertjax.bench import rival_step  # torch, which training does not need

    arms[_AGAINST.value] = rival_step.make_step(config, batch)
    note = rival_step.rival_of(config).note
  seconds = timing.alternate(arms, _CALLS.value, _WARMUP.value)
  tokens = config.batch_size * config.length
  result: dict[str, Any] = dict(
    bench='step', config=config.name, batch_size=config.batch_size, length=config.length,
    dtype=config.model.dtype, calls=_CALLS.value, **own_step.footprint(config, batch),
    **{name: timing.summary(s, tokens, 'tokens') for name, s in seconds.items()},
  )  # fmt: skip
  if _AGAINST.value:
    ratio = np.median(seconds[_AGAINST.value]) / np.median(seconds['ours'])
    result['ratio'] = round(float(ratio), 4)
    if note:
      result['note'] = note
  result |= timing.environment() | dict(device=jax.devices()[0].device_kind)
  json.dump(result, sys.stdout)
  sys.stdout.write('\n')
