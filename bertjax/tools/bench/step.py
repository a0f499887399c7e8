"""python -m bertjax.bench step: the compiled train step (forward, backward, clip, optimizer).

  python -m bertjax.bench step --config=configs/bert.py:base --batch_size=8 --length=128 \
      --against=transformers,gathered,compiled

The batch is made-up text in the recipe's own rows, or text of --config.data.store; dropout is on,
and --nodropout takes it from all sides. `tokens_per_second` counts all positions of the rows,
`real_tokens_per_second` those that are no padding, of which there are more in rows that several
texts share (--config.data.pack). `state_bytes` are the parameters' and the
optimizer's. With --against the same model, batch and optimizer run in PyTorch, each arm in a
process of its own, in alternation; `ratio` is our tokens/s over theirs.
"""

import contextlib
import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from absl import flags

from bertjax.config import command_line
from bertjax.store.reader import open_store
from bertjax.tools.bench.parts import own_step, timing
from bertjax.tools.bench.parts.synthetic import synthetic_batch
from bertjax.types import Batch

ARMS = ('transformers', 'gathered', 'compiled')

_CONFIG = command_line.define_config()
_BATCH_SIZE = flags.DEFINE_integer('batch_size', 8, 'Rows per step.', lower_bound=1)
_LENGTH = flags.DEFINE_integer('length', 128, 'Tokens per row.', lower_bound=8)
_AGAINST = flags.DEFINE_list(
  'against', [], 'Also time PyTorch: transformers as it ships; gathered, with the logits of the '
  'targets alone; compiled, that by torch.compile.',
)  # fmt: skip
_DROPOUT = flags.DEFINE_bool('dropout', True, 'Dropout at the rates of the config; else at none.')
_CALLS = flags.DEFINE_integer('calls', 20, 'Timed calls of each side.', lower_bound=1)
flags.mark_flag_as_required('config')
flags.register_validator(
  'against',
  lambda arms: set(arms) <= set(ARMS),
  message=f'--against takes {", ".join(ARMS)}, one or several',
)


def main() -> None:
  """Times the step and prints one JSON line."""
  config, store = _CONFIG.value, None
  if config.data.store:
    store = open_store(config.data.store)
    config.model.vocab_size = store.vocabulary_size
  config = own_step.sized(config, _BATCH_SIZE.value, _LENGTH.value)
  if not _DROPOUT.value:
    own_step.drop_nothing(config.model)
  batch = synthetic_batch(config, store)
  seconds = _step_seconds(config, batch)
  tokens, real = config.batch_size * config.length, int(np.count_nonzero(batch['example_BT']))
  result: dict[str, Any] = dict(
    bench='step', config=config.name, batch_size=config.batch_size, length=config.length,
    dtype=config.model.dtype, dropout=_DROPOUT.value, calls=_CALLS.value,
    text=config.data.store or 'made up', real_tokens=real,
    **own_step.footprint(config, batch),
    **{
      name: timing.summary(s, tokens, 'tokens') | timing.summary(s, real, 'real_tokens')
      for name, s in seconds.items()
    },
  )  # fmt: skip
  if _AGAINST.value:
    ours = np.median(seconds['ours'])
    result['ratio'] = {
      name: round(float(np.median(s) / ours), 4) for name, s in seconds.items() if name != 'ours'
    }
  print(json.dumps(result | timing.environment() | dict(device=jax.devices()[0].device_kind)))


def _step_seconds(config: Any, batch: Batch) -> Mapping[str, np.ndarray]:
  """Times our step and the step of each rival in --against: seconds, float64 [calls]."""
  with contextlib.ExitStack() as stack:
    arms = {}
    for arm in _AGAINST.value:
      from bertjax.tools.bench.parts import rivals  # torch, which training does not need

      arms[arm] = stack.enter_context(timing.apart(rivals.make_step, config, batch, arm))
    arms = dict(ours=own_step.make_step(config, batch)) | arms
    return timing.alternate(arms, _CALLS.value, timing.WARMUP)
