"""Times of the attention operation on the device at hand, beside its rate of plain products."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bertjax.kernels.relative_attention import relative_attention
from bertjax.kernels.relative_attention.arg_specs import Shape
from bertjax.tools.bench.parts import passes, timing

REFERENCE = functools.partial(relative_attention, impl='reference')
# Largest error over the largest value, of implementations that round in different places.
TOLERANCE = {'float32': 1e-4, 'bfloat16': 3e-2}
PRODUCT = {'cpu': 1024, 'gpu': 8192, 'tpu': 8192}  # side of the matrices


def matmul_rate(dtype: Any, calls: int) -> float:
  """Measured FLOP/s of a large square product."""
  side = PRODUCT[jax.default_backend()]
  x = jax.random.normal(jax.random.key(0), (side, side), dtype)
  product = jax.jit(lambda x: jnp.matmul(x, x))
  return 2 * side**3 / timing.queued(dict(product=lambda: product(x)), calls)['product']


def rows(
  shapes: Mapping[str, Shape], impls: Sequence[str], dtype: str, calls: int
) -> Iterator[dict[str, Any]]:
  """Yields a row for each shape and implementation, those of a shape timed in alternation. What is
  timed has first been compared with the reference; one that differs, or that does not run here,
  gets a reason in place of a time."""
  rate = matmul_rate(dtype, calls)
  yield dict(matmul_flops_per_second=float(f'{rate:.4g}'))
  for name, shape in shapes.items():
    arguments = jax.jit(lambda shape=shape: passes.arguments(shape, jnp.dtype(dtype)))()
    work = passes.flops(shape)
    made = dict(shape=name, dtype=dtype)
    want = jax.jit(passes.forward_backward(REFERENCE))(*arguments)
    arms, errors = {}, {}
    for impl in impls:
      function = jax.jit(passes.forward_backward(functools.partial(relative_attention, impl=impl)))
      try:
        errors[impl] = passes.largest_error(function(*arguments), want)
      except Exception as error:  # of many types; whatever it is goes into the table
        yield made | dict(impl=impl, reason=f'{type(error).__name__}: {str(error)[:160]}')
        continue
      if not errors[impl] < TOLERANCE[dtype]:
        yield made | dict(impl=impl, reason=f'differs from the reference by {errors[impl]:.2g}')
        continue
      arms[impl] = functools.partial(function, *arguments)
    del want
    median = timing.queued(arms, calls)
    for impl in arms:
      row = made | dict(impl=impl, error=float(f'{errors[impl]:.2g}'))
      row |= dict(median_s=round(median[impl], 6), share=round(work / median[impl] / rate, 4))
      if 'reference' in median:
        row['speedup'] = round(median['reference'] / median[impl], 3)
      yield row
