"""python -m bertjax.bench preflight: a config's train step, compiled for a TPU that is not there.

  python -m bertjax.bench preflight --config=configs/xlnet.py:large --batch_size=16 --length=512 \
      --config.model.dtype=bfloat16 --kind=v5e --impls=tpu,reference

Each implementation of attention in turn: the memory of one chip and the bytes that a step moves
between it and the chip, both from the compiled program (`traffic.py` says what is counted), and by
operation of the code, the largest first.
--batch_size is that of the chip. A program that does not fit has the compiler's reason.
"""

import json
import sys
from typing import Any

from absl import app, flags
from ml_collections import config_flags

from bertjax.bench import own_step, step_compile, timing
from bertjax.bench.synthetic import synthetic_batch
from bertjax.kernels import relative_attention

_CONFIG = config_flags.DEFINE_config_file('config', None, 'Config file, e.g. configs/xlnet.py:base')
_BATCH_SIZE = flags.DEFINE_integer('batch_size', 8, 'Rows per step on a chip.', lower_bound=1)
_LENGTH = flags.DEFINE_integer('length', 512, 'Tokens per row.', lower_bound=8)
_KIND = flags.DEFINE_string('kind', 'v5e', 'Kind of TPU: v5e, v5p, v6e, v4.')
_IMPLS = flags.DEFINE_list('impls', list(relative_attention.IMPLEMENTATIONS), 'Of attention.')
flags.mark_flag_as_required('config')


def main(argv: list[str]) -> None:
  """Prints a line for each implementation, then one JSON line."""
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments: {" ".join(argv[1:])}')
  config = own_step.sized(_CONFIG.value, _BATCH_SIZE.value, _LENGTH.value)
  batch = synthetic_batch(config)
  result: dict[str, Any] = dict(
    bench='preflight', config=config.name, batch_size=config.batch_size, length=config.length,
    dtype=config.model.dtype, rows=[],
  )  # fmt: skip
  for impl in _IMPLS.value:
    result['rows'].append(step_compile.check(config, batch, _KIND.value, impl))
    _show(result['rows'][-1])
  json.dump(result | timing.environment(), sys.stdout)
  sys.stdout.write('\n')


def _show(row: dict[str, Any]) -> None:
  operations = row.get('by_operation', {})
  print('  '.join(f'{key} {x}' for key, x in row.items() if x is not operations))
  for name, moved in operations.items():
    print(f'  {moved:>10,} bytes a token: {name}', flush=True)
