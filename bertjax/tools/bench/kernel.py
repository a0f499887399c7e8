"""python -m bertjax.bench kernel: the attention operation, forward and backward.

  python -m bertjax.bench kernel                     time on this machine's device, each result
                                                     compared with the reference's first
  python -m bertjax.bench kernel --mode=tune         time tiles of this device's kernel, and write
                                                     kernels/relative_attention/tuning/KIND.json

Every row is printed as it is known, then all as one JSON line. The shapes are those of
`kernels/relative_attention/arg_specs.py`; --rows, --heads and --lengths make them smaller. tune has
no --impls.
"""

import datetime
import json
from typing import Any

import jax
from absl import flags

from bertjax.errors import UserError, choose
from bertjax.kernels.relative_attention import IMPLEMENTATIONS, KERNELS
from bertjax.kernels.relative_attention.arg_specs import SHAPES
from bertjax.tools.bench.parts import kernel_time, kernel_tune, timing

_MODE = flags.DEFINE_enum('mode', 'time', ['time', 'tune'], 'Measure to take.')
_IMPLS = flags.DEFINE_list('impls', list(IMPLEMENTATIONS), 'Implementations.')
_SHAPES = flags.DEFINE_list('shapes', list(SHAPES), 'Names of shapes.')
_LENGTHS = flags.DEFINE_list('lengths', None, 'Queries, in place of those of the shape, no memory.')
_ROWS = flags.DEFINE_integer('rows', None, 'Rows, in place of those of the shape.', lower_bound=1)
_HEADS = flags.DEFINE_integer('heads', None, 'Heads, likewise.', lower_bound=1)
_DTYPE = flags.DEFINE_enum('dtype', 'bfloat16', ['bfloat16', 'float32'], 'Dtype to time or tune.')
_CALLS = flags.DEFINE_integer('calls', 10, 'Timed calls of each side.', lower_bound=1)


def _shapes() -> dict[str, Any]:
  """Returns the shapes that the flags ask for, by name."""
  out = {}
  sized = dict(rows=_ROWS.value, heads=_HEADS.value)
  for name in _SHAPES.value:
    shape = SHAPES[choose(name, SHAPES, '--shapes')]._replace(
      **{k: v for k, v in sized.items() if v}
    )
    for length in _LENGTHS.value or ():
      out[f'{name}@{length}'] = shape._replace(queries=int(length), memory=0)
    if not _LENGTHS.value:
      out[name] = shape
  return out


def main() -> None:
  """Prints the rows of a mode, then one JSON line."""
  impls = [choose(name, IMPLEMENTATIONS, '--impls') for name in _IMPLS.value]
  if _MODE.value == 'tune':
    impl = jax.default_backend()
    if impl not in KERNELS:
      raise UserError(f'--mode=tune: expected a TPU or a GPU, got {impl}: it has no kernel to tune')
    made = f'{datetime.date.today()}, jax {jax.__version__}'
    rows = kernel_tune.rows(_shapes(), impl, _DTYPE.value, _CALLS.value, made)
  else:
    rows = kernel_time.rows(_shapes(), impls, _DTYPE.value, _CALLS.value)
  result: dict[str, Any] = dict(bench='kernel', mode=_MODE.value, rows=[])
  for row in rows:
    print('  '.join(f'{key} {value}' for key, value in row.items()), flush=True)
    result['rows'].append(row)
  print(json.dumps(result | timing.environment() | dict(device=jax.devices()[0].device_kind)))
