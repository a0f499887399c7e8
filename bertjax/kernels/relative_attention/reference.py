"""The meaning of the attention operation, in plain JAX, on a block of queries or on all of them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bertjax.kernels import dropout as dropout_lib
from bertjax.kernels.relative_attention import distance_tables
from bertjax.kernels.relative_attention.operands import Dropout, Mask, Operands, Relative
from bertjax.types import Array

BLOCK = 128  # queries, or keys, whose products with a table are taken together


class Place(NamedTuple):
  """The place of a block in the operation: its first query, what the columns of its keys are ahead
  of their numbers here, those of sinks apart, and T and S of the operation, whose queries are the
  last of the keys' columns."""

  first: Array | int
  low: Array | int
  queries: int
  keys: int

  @property
  def column(self) -> Array | int:
    """The first query's column, counted as the block's keys are."""
    return self.keys - self.queries + self.first - self.low


def visible(mask: Mask, column_T: Array | None = None, near: int | None = None) -> Array:
  """Returns the mask as bool [B, T, S]; for the reference, counts and tests only.

  Args:
    mask: of the keys and of the queries wanted.
    column_T: the queries' columns among the keys; None: they are the last T.
    near: no key at a smaller distance is visible (`Operands.nearest`).
  """
  if mask.causal:
    near = 0 if near is None else max(near, 0)
  keys = mask.example_k_BS.shape[1]
  if column_T is None:
    column_T = jnp.arange(keys - mask.example_q_BT.shape[1], keys)
  distance_TS = column_T[:, None] - jnp.arange(keys)[None, :]
  query_BT1, key_B1S = mask.example_q_BT[:, :, None], mask.example_k_BS[:, None, :]
  seen_BTS = (query_BT1 == key_B1S) & (query_BT1 > 0)
  if mask.order_q_BT is not None and mask.order_k_BS is not None:
    ahead_BTS = mask.order_q_BT[:, :, None] > mask.order_k_BS[:, None, :]
    if mask.see_self:
      ahead_BTS |= (distance_TS == 0)[None]
    seen_BTS &= ahead_BTS
  if mask.window is not None:
    near_TS = (jnp.abs(distance_TS) < mask.window) | (jnp.arange(keys) < mask.sinks)[None]
    seen_BTS &= near_TS[None]
  if near is not None:
    seen_BTS &= (distance_TS >= near)[None]
  return seen_BTS


def _dot(x: Array, y: Array, of_x: int, of_y: int, dtype: Any = jnp.float32) -> Array:
  """Sums over an axis of either, for each row and head."""
  numbers = ((of_x,), (of_y,)), ((0, 1), (0, 1))
  return jax.lax.dot_general(x, y, numbers, preferred_element_type=dtype)


@jax.custom_vjp
def _products(x_BNTH: Array, y_BNSH: Array) -> Array:
  """Returns the product of each x with each y, float32 [B, N, T, S]; one row of y serves all."""
  return _dot(x_BNTH, _for_all(y_BNSH, x_BNTH), 3, 3)


def _for_all(y_BNSH: Array, x_BNTH: Array) -> Array:
  return jnp.broadcast_to(y_BNSH, (len(x_BNTH), *y_BNSH.shape[1:]))


def _products_gradient(given: tuple[Array, Array], slope_BNTS: Array) -> tuple[Array, Array]:
  """The slopes are the second factor of y's gradient: as the first one, which jax would make them,
  XLA on CPUs turns them before the product."""
  x_BNTH, y_BNSH = given
  by_x_BNTH = _dot(slope_BNTS, _for_all(y_BNSH, x_BNTH), 3, 2)
  by_y_BNSH = jnp.swapaxes(_dot(x_BNTH, slope_BNTS, 2, 2), 2, 3)
  if len(y_BNSH) == 1:
    by_y_BNSH = jnp.sum(by_y_BNSH, 0, keepdims=True)
  return by_x_BNTH.astype(x_BNTH.dtype), by_y_BNSH.astype(y_BNSH.dtype)


_products.defvjp(lambda x, y: (_products(x, y), (x, y)), _products_gradient)


def _by_distance(x_BTNH: Array, table: Array) -> Array:
  """Returns the product of each x with the row of its distance to each of the others, float32
  [B, N, T, S]. The table, [(B), T + S, N, H], begins at the distance of the last x to the first of
  the others. A block of x needs few more rows than there are others; all of x at once would need as
  many more as there are x."""
  batch, count, heads, size = x_BTNH.shape
  block = BLOCK if count % BLOCK == 0 else count
  others = table.shape[-3] - count
  starts = range(count - block, -1, -block)
  windows = jnp.stack([table[..., at : at + block + others, :, :] for at in starts], -4)
  windows = jnp.moveaxis(windows, -2, -4)  # [(B), N, blocks, block + S, H]
  products = _products(
    jnp.swapaxes(x_BTNH, 1, 2).reshape(batch, -1, block, size),
    windows.reshape(-1, heads * len(starts), block + others, size),
  )
  return distance_tables.shift(products).reshape(batch, heads, count, others)


def scores(x: Operands, column: Array | int) -> Array:
  """float32 [B, N, T, S] before the mask; `column` is the first query's among the keys."""
  q_BTNH, relative = x.q_BTNH, x.relative or Relative()
  queries, keys = q_BTNH.shape[1], x.k_BSNH.shape[1]
  furthest = column + queries - 1  # distance, of the last query to the first key

  def scaled(bias_NH: Array | None) -> Array:
    biased_BTNH = q_BTNH if bias_NH is None else q_BTNH + bias_NH[None, None].astype(q_BTNH.dtype)
    return biased_BTNH * x.scale

  def rows(table: Array, first: Array | int) -> Array:
    return distance_tables.span(table, relative.far, first, queries + keys, relative.direction_B)

  u_BTNH = scaled(relative.u_NH)
  score_BNTS = _products(jnp.swapaxes(u_BTNH, 1, 2), jnp.swapaxes(x.k_BSNH, 1, 2))
  if relative.r_RNH is not None:
    table = rows(relative.r_RNH.astype(q_BTNH.dtype), furthest)
    score_BNTS += _by_distance(scaled(relative.w_NH), table)
  if relative.p_RNH is not None:
    table = jnp.flip(rows(relative.p_RNH.astype(q_BTNH.dtype), furthest + 1), -3)
    score_BNTS += jnp.swapaxes(_by_distance(x.k_BSNH * x.scale, table), 2, 3)
  if relative.bias_NR is not None:
    bias = jnp.moveaxis(rows(relative.bias_NR.T, furthest), -1, -2)
    bias = bias.reshape(-1, bias.shape[-2], 1, queries + keys)  # [B or 1, N, 1, R]
    shape = (*bias.shape[:2], queries, queries + keys)
    score_BNTS += distance_tables.shift(jnp.broadcast_to(bias, shape))
  if relative.segment is not None:
    segment = relative.segment
    embedding_2NH = segment.embedding_2NH.astype(q_BTNH.dtype)
    either_BNT2 = jnp.einsum(
      'BTNH,KNH->BNTK', scaled(segment.z_NH), embedding_2NH, preferred_element_type=jnp.float32
    )
    other_BTS = segment.segment_q_BT[:, :, None] != segment.segment_k_BS[:, None, :]
    score_BNTS += jnp.where(other_BTS[:, None], either_BNT2[..., 1:], either_BNT2[..., :1])
  return score_BNTS


def probabilities(x: Operands, place: Place, near: int | None) -> Array:
  """Returns the weights of a block, float32 [B, N, T, S], as of `attend_block`, before dropout."""
  column_T = place.column + jnp.arange(x.q_BTNH.shape[1])
  seen_B1TS = visible(x.mask, column_T, near)[:, None]
  score_BNTS = scores(x, place.column)
  score_BNTS = jnp.where(seen_B1TS, score_BNTS, jnp.finfo(jnp.float32).min)
  return jnp.where(seen_B1TS, jax.nn.softmax(score_BNTS, axis=-1), 0.0)


def attend_block(x: Operands, place: Place, near: int | None) -> Array:
  """Attention of a block: operands of its queries and keys alone, `nearest` of the operation."""
  prob_BNTS = probabilities(x, place, near)
  if x.dropout is not None:
    prob_BNTS = _drop(prob_BNTS, x.dropout, place, x.mask.sinks)
  v_BNSH = jnp.swapaxes(x.v_BSNH, 1, 2)
  y_BNTH = _dot(prob_BNTS.astype(v_BNSH.dtype), v_BNSH, 3, 2, dtype=None)
  return jnp.swapaxes(y_BNTH, 1, 2)


def _drop(prob_BNTS: Array, dropout: Dropout, place: Place, sinks: int) -> Array:
  """Zeroes probabilities by the hash of (head, query, key), counted over the whole operation."""
  shape = prob_BNTS.shape[1:]
  head, query, key = (jax.lax.broadcasted_iota(jnp.uint32, shape, axis) for axis in range(3))
  head += jnp.asarray(dropout.head).astype(jnp.uint32)
  query += jnp.asarray(place.first).astype(jnp.uint32)
  key += jnp.where(key < sinks, 0, jnp.asarray(place.low)).astype(jnp.uint32)
  index_NTS = (head * jnp.uint32(place.queries) + query) * jnp.uint32(place.keys) + key
  bits_BNTS = dropout_lib.bits_at(dropout.noise, dropout.site, index_NTS)
  keep_BNTS = bits_BNTS >= dropout_lib.threshold(dropout.rate)
  return jnp.where(keep_BNTS, prob_BNTS * (1.0 / (1.0 - dropout.rate)), 0.0)


def attend(x: Operands) -> Array:
  """Returns the whole operation at once, with every score in memory; see `relative_attention`."""
  return attend_block(x, Place(0, 0, x.q_BTNH.shape[1], x.k_BSNH.shape[1]), x.nearest)


def weights(
  query_BTNH: Array, key_BSNH: Array, mask: Mask, relative: Relative | None = None
) -> Array:
  """Returns what multiplies the values: float32 [B, N, T, S]."""
  x = Operands(query_BTNH, key_BSNH, key_BSNH, mask, relative)
  return probabilities(x, Place(0, 0, query_BTNH.shape[1], key_BSNH.shape[1]), x.nearest)
