"""python -m bertjax.bench kernel: the attention operation, forward and backward.

  python -m bertjax.bench kernel                     time on this machine's device, each result
                                                     compared with the reference's first
  python -m bertjax.bench kernel --mode=tune         time tiles of this device's kernel, and write
                                                     kernels/relative_attention/tuning/KIND.json

Every row is printed as it is known, then all as one JSON line. The shapes are those of
`kernels/relative_attention/arg_specs.py`. tune has no --impls.
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
_IMPLS = flags.DEFINE_list('impls', None, 'Implementations to time; all by default.')
_SHAPES = flags.DEFINE_list('shapes', list(SHAPES), 'Names of shapes.')
_DTYPE = flags.DEFINE_enum('dtype', 'bfloat16', ['bfloat16', 'float32'], 'Dtype to time or tune.')
_CALLS = flags.DEFINE_integer('calls', 10, 'Timed calls of each side.', lower_bound=1)


def main() -> None:
  """Prints the rows of a mode, then one JSON line."""
  shapes = {name: SHAPES[choose(name, SHAPES, '--shapes')] for name in _SHAPES.value}
  if _MODE.value == 'tune':
    if _IMPLS.value is not None:
      raise UserError(
        f'--impls={",".join(_IMPLS.value)}: --mode=tune has the kernel of this device'
      )
    impl = jax.default_backend()
    if impl not in KERNELS:
      raise UserError(f'--mode=tune: expected a TPU or a GPU, got {impl}: it has no kernel to tune')
    made = f'{datetime.date.today()}, jax {jax.__version__}'
    rows = kernel_tune.rows(shapes, impl, _DTYPE.value, _CALLS.value, made)
  else:
    impls = [choose(name, IMPLEMENTATIONS, '--impls') for name in _IMPLS.value or IMPLEMENTATIONS]
    rows = kernel_time.rows(shapes, impls, _DTYPE.value, _CALLS.value)
  result: dict[str, Any] = dict(bench='kernel', mode=_MODE.value, rows=[])
  for row in rows:
    print('  '.join(f'{key} {value}' for key, value in row.items()), flush=True)
    result['rows'].append(row)
  print(json.dumps(result | timing.environment() | dict(device=jax.devices()[0].device_kind)))
