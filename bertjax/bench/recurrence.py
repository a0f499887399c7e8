"""python -m bertjax.bench recurrence: what memory saves when a language model is evaluated.

  python -m bertjax.bench recurrence --config=configs/transformer_xl.py:tiny --plot=recurrence.png
  python -m bertjax.bench recurrence --config=... --workdir=runs/mine

Scores with cached segments against one window per token (`evals/recurrence.py`): with the same
weights, without hidden scores and with one query in the last layer (`windows`) or all of it
(`dense`), and with learned absolute positions, as the paper compares (`absolute`). Each has the
number of rows at which it is fastest: all are swept by powers of two, then timed in alternation.
`ratio` is an arm's time per token over that of cached segments. With --workdir the weights are
those of its newest checkpoint and the text what it holds out, and `by_memory` gives the loss of all
of it against the segments of memory; without it both are random.
"""

import json
import sys
from typing import Any

import jax
from absl import flags
from ml_collections import config_flags

from bertjax.bench.parts import timing
from bertjax.bench.parts.recurrence_time import plot, speed, subject
from bertjax.evals import recurrence
from bertjax.storage import remote

_CONFIG = config_flags.DEFINE_config_file('config', None, 'Config of a language model with memory.')
_WORKDIR = flags.DEFINE_string('workdir', None, 'Run whose weights and held-out text to take.')
_LENGTHS = flags.DEFINE_multi_integer(
  'lengths', [128, 256, 512, 1024, 3800], 'Attention lengths.', lower_bound=2
)
_SEGMENT = flags.DEFINE_integer('segment', 128, 'Positions of a cached batch.', lower_bound=1)
_KEYS = flags.DEFINE_integer(
  'keys', 65536, 'Rows times keys at which the sweep ends.', lower_bound=2
)
_SAMPLES = flags.DEFINE_integer('samples', 8, 'Places compared in each half.', lower_bound=2)
_CALLS = flags.DEFINE_integer('calls', 20, 'Timed calls of each side.', lower_bound=1)
_PLOT = flags.DEFINE_string('plot', None, 'Where to draw the ratios (.png).')
flags.mark_flag_as_required('config')


def main() -> None:
  """Compares, times and prints one JSON line."""
  lengths = sorted(_LENGTHS.value)
  size = 2 * (lengths[-1] + _SEGMENT.value) + 1
  remote.require_local(_WORKDIR.value, '--workdir')
  config, variables, token_n = subject(_CONFIG.value, _WORKDIR.value, size)
  found = []
  for length in lengths:
    segment = min(_SEGMENT.value, length)
    both = speed(config, variables, token_n, length, segment, _KEYS.value, _CALLS.value)
    losses = recurrence.compare(config, variables, token_n, length, segment, _SAMPLES.value)
    found.append(both | dict(nats=losses))
    fast = ', '.join(
      f'{name} {both[name]["tokens_per_second"]:,.1f}/s at {both[name]["rows"]} rows'
      for name in ('cached', *both['ratio'])
    )
    said = ', '.join(f'{name} {ratio:,.1f}' for name, ratio in both['ratio'].items())
    sys.stderr.write(f'length {length}: {fast}; ratios: {said}\n')
  result: dict[str, Any] = dict(bench='recurrence', config=config.name, lengths=found)
  if _WORKDIR.value:
    held_out = config.evals.held_out
    rows, segment = held_out.batch_size, held_out.length or config.length
    result['by_memory'] = recurrence.by_memory(config, variables, token_n, segment, rows)
  if _PLOT.value:
    plot(found, _PLOT.value)
  result |= timing.environment() | dict(device=jax.devices()[0].device_kind)
  json.dump(result, sys.stdout)
  sys.stdout.write('\n')
