"""Blocks of scores that hold anything: a kernel visits only these."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from bertjax.kernels.relative_attention.operands import Mask
from bertjax.types import Array

_FAR = 2**30


class Visits(NamedTuple):
  """For each block of queries the number of blocks of keys to visit, int32, and which, then the
  last one again (a block that does not change is not fetched); or the other way round."""

  count_BI: Array
  index_BIJ: Array


def visits(seen_BIJ: Array) -> Visits:
  """Lists the blocks of the last axis that are True."""
  count_BI = seen_BIJ.sum(-1, dtype=jnp.int32)
  order_BIJ = jnp.argsort(~seen_BIJ, -1, stable=True)
  last_BI1 = jnp.maximum(count_BI - 1, 0)[..., None]
  step_11J = jnp.arange(seen_BIJ.shape[-1])[None, None]
  index_BIJ = jnp.take_along_axis(order_BIJ, jnp.minimum(step_11J, last_BI1), -1)
  return Visits(count_BI, index_BIJ.astype(jnp.int32))


def seen(mask: Mask, memory: int, near: int | None, block_q: int, block_k: int) -> Array:
  """Finds the blocks in which a query may see a key: bool [B, blocks of queries, of keys]. A block
  is left out where the extremes of its vectors already say that nothing is visible. That is exact
  for packed rows, causal order and windows; where ids or orders are in no order, blocks that hold
  nothing may remain.

  Args:
    mask: of any lengths; what they lack of whole blocks is padding, as is example 0.
    memory: distance of the first query to the first key.
    near: no key at a smaller distance is visible.
    block_q, block_k: queries and keys of a block.
  """
  real_q_BT, real_k_BS = mask.example_q_BT > 0, mask.example_k_BS > 0

  def extreme(reduce: Callable, x_BL: Array, real_BL: Array, fill: int, block: int) -> Array:
    x_BL = jnp.where(real_BL, x_BL.astype(jnp.int32), fill)
    x_BL = jnp.pad(x_BL, ((0, 0), (0, -x_BL.shape[1] % block)), constant_values=fill)
    return reduce(x_BL.reshape(x_BL.shape[0], -1, block), -1)

  def of_q(reduce: Callable, x_BT: Array, fill: int) -> Array:
    return extreme(reduce, x_BT, real_q_BT, fill, block_q)[:, :, None]

  def of_k(reduce: Callable, x_BS: Array, fill: int) -> Array:
    return extreme(reduce, x_BS, real_k_BS, fill, block_k)[:, None, :]

  # A block without a real token has its least above its most, and meets no other.
  may_BIJ = of_q(jnp.max, mask.example_q_BT, -_FAR) >= of_k(jnp.min, mask.example_k_BS, _FAR)
  may_BIJ &= of_k(jnp.max, mask.example_k_BS, -_FAR) >= of_q(jnp.min, mask.example_q_BT, _FAR)
  blocks_q, blocks_k = may_BIJ.shape[1:]
  first_q_I1 = memory + block_q * jnp.arange(blocks_q)[:, None]
  first_k_1J = block_k * jnp.arange(blocks_k)[None, :]
  most_IJ = first_q_I1 + block_q - 1 - first_k_1J  # the largest distance in a block
  least_IJ = first_q_I1 - (first_k_1J + block_k - 1)
  if mask.order_q_BT is not None and mask.order_k_BS is not None:
    ahead_BIJ = of_q(jnp.max, mask.order_q_BT, -_FAR) > of_k(jnp.min, mask.order_k_BS, _FAR)
    if mask.see_self:
      ahead_BIJ |= ((most_IJ >= 0) & (least_IJ <= 0))[None]
    may_BIJ &= ahead_BIJ
  if mask.window is not None:
    inside_IJ = (most_IJ > -mask.window) & (least_IJ < mask.window)
    may_BIJ &= (inside_IJ | (first_k_1J < mask.sinks))[None]
  if near is not None:
    may_BIJ &= (most_IJ >= near)[None]
  return may_BIJ
