"""Forward and backward of the attention operation as one function of arrays, and what they cost."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bertjax.kernels.relative_attention import visible
from bertjax.kernels.relative_attention.arg_specs import Operands, Shape, mask, operands

Array = jax.Array


def forward_backward(
  attention: Callable[..., Array],
) -> Callable[[Operands, Array], tuple[Array, list[Array]]]:
  """(operands, tangent [B, T, N, H]) -> (output, the gradient of every float array)."""

  def run(x: Operands, tangent_BTNH: Array) -> tuple[Array, list[Array]]:
    attend = lambda q, k, v, relative: attention(q, k, v, x.mask, relative, x.dropout)
    y_BTNH, pull = jax.vjp(attend, x.q_BTNH, x.k_BSNH, x.v_BSNH, x.relative)
    slopes = jax.tree.leaves(pull(tangent_BTNH))
    return y_BTNH, [slope for slope in slopes if slope.dtype != jax.dtypes.float0]

  return run


def arguments(shape: Shape, dtype: Any = jnp.bfloat16) -> tuple[Operands, Array]:
  """Random arguments of `forward_backward`; shapes alone under `jax.eval_shape`."""
  x = operands(shape, jax.random.key(0), dtype)
  return x, jax.random.normal(jax.random.key(1), x.q_BTNH.shape, dtype)


def flops(shape: Shape) -> float:
  """Returns the FLOPs that forward and backward need: each product, over visible pairs, once.
  Forward has q k, p v and, with projected positions, q r; backward two for each."""
  one = shape._replace(rows=1)
  seen_TS = jax.jit(lambda key: visible(mask(one, key)))(jax.random.key(0))
  products = 2 + bool(shape.table and not shape.bias)
  pairs = shape.rows * shape.heads * float(np.asarray(seen_TS).sum())
  return 3 * products * 2 * shape.size * pairs


@jax.jit
def _errors(got: Any, want: Any) -> Any:
  """Errors over the largest value, of each array; on the device, where the arrays are."""

  def error(g, w) -> Array:
    g, w = g.astype(jnp.float32), w.astype(jnp.float32)
    return jnp.abs(g - w).max() / jnp.maximum(jnp.abs(w).max(), 1e-30)

  return jax.tree.map(error, got, want)


def largest_error(got: Any, want: Any) -> float:
  """Returns the largest error of any array, over the largest value of that array; NaN if one has
  any."""
  return float(np.max(jax.device_get(jax.tree.leaves(_errors(got, want)))))
