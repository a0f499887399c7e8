"""Which blocks of scores hold anything: a kernel visits those alone."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bertjax.kernels.relative_attention.operands import Mask

Array = jax.Array

_FAR = 2**30


class Visits(NamedTuple):
  """The blocks of keys that each block of queries visits, in order.

  Attributes:
    count_BQ: int32, how many.
    index_BQK: int32, which, then the last one again; a block that does not change is not fetched.
  """

  count_BQ: Array
  index_BQK: Array


def visits(mask: Mask, memory: int, near: int | None, block: int) -> Visits:
  """Finds the blocks in which a query may see a key.

  A block is left out where the extremes of its vectors already say that nothing is visible, so some
  that hold nothing may remain.

  Args:
    mask: of padded queries and keys, whole blocks of both; padding is example 0.
    memory: distance of the first query to the first key.
    near: no key at a smaller distance is visible.
    block: queries and keys of a block.
  """
  may_BQK = _may_see(mask, memory, near, block)
  count_BQ = may_BQK.sum(-1, dtype=jnp.int32)
  order_BQK = jnp.argsort(~may_BQK, -1, stable=True)
  last_BQ1 = jnp.maximum(count_BQ - 1, 0)[..., None]
  step_K = jnp.arange(may_BQK.shape[-1])[None, None]
  index_BQK = jnp.take_along_axis(order_BQK, jnp.minimum(step_K, last_BQ1), -1)
  return Visits(count_BQ, index_BQK.astype(jnp.int32))


def _may_see(mask: Mask, memory: int, near: int | None, block: int) -> Array:
  split = lambda x: x.reshape(x.shape[0], -1, block)
  real_q, real_k = split(mask.example_q_BT) > 0, split(mask.example_k_BS) > 0

  def low(x, real):
    return jnp.where(real, split(x), _FAR).min(-1)

  def high(x, real):
    return jnp.where(real, split(x), -_FAR).max(-1)

  q, k = (lambda x: x[:, :, None]), (lambda x: x[:, None, :])
  may = q(high(mask.example_q_BT, real_q)) >= k(low(mask.example_k_BS, real_k))
  may &= k(high(mask.example_k_BS, real_k)) >= q(low(mask.example_q_BT, real_q))
  may &= q(real_q.any(-1)) & k(real_k.any(-1))
  first_q = memory + block * jnp.arange(real_q.shape[1])[None, :, None]
  first_k = block * jnp.arange(real_k.shape[1])[None, None, :]
  # Distances within a block: from (first_q - first_k) - (block - 1) to + (block - 1).
  apart = first_q - first_k
  if mask.order_q_BT is not None and mask.order_k_BS is not None:
    ahead = q(high(mask.order_q_BT, real_q)) > k(low(mask.order_k_BS, real_k))
    if mask.see_self:
      ahead |= jnp.abs(apart) < block
    may &= ahead
  if mask.window is not None:
    inside = jnp.abs(apart) < mask.window + block - 1
    if mask.global_q_BT is not None and mask.global_k_BS is not None:
      inside = inside | q(split(mask.global_q_BT).any(-1)) | k(split(mask.global_k_BS).any(-1))
    may &= inside
  if near is not None:
    may &= apart + block - 1 >= near
  return may
