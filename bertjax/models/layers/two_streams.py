"""XLNet's two streams in one array, and the layer whose attention tells them apart.

The content stream h and the query stream g go through the same weights, so a layer has them side by
side: x holds T columns of h and then P slots of g, here [B, X, D]. Only attention tells them apart:
there the slots are spread to their columns, since the distance of a query follows from its column,
and picked up again.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bertjax.kernels import dropout as dropout_lib
from bertjax.kernels.relative_attention import Mask, Relative, Segment
from bertjax.models.layers.attention import Attention
from bertjax.models.layers.basic import param
from bertjax.models.layers.block import Block
from bertjax.models.layers.positions import query_biases
from bertjax.types import Array, Batch


class Slots(NamedTuple):
  """The slot of each column, P where it has none; the column of each slot; and True for used
  slots."""

  slot_BT: Array
  column_BP: Array
  used_BP: Array


class Streams(NamedTuple):
  """Inputs of all layers besides the hidden states of both streams."""

  # content, query: the masks of h and g; query is None where there is no g
  content: Mask
  query: Mask | None
  slots: Slots | None  # the slots of g, or None
  table_RD: Array  # sinusoids of the distances
  direction_B: Array | None  # see `Relative`, or None
  # segment_BT, segment_BS: segments of the queries and of the keys
  segment_BT: Array
  segment_BS: Array
  biases: tuple[Array, ...] | None  # u, w and z, [N, H], if all layers share them, else None


class Layer(Block):
  """A block of both streams."""

  def content(self, x_BTD: Array, context: Streams) -> Array:
    """Returns the columns of h, which are seen and remembered; g is neither."""
    return x_BTD[:, : context.segment_BT.shape[1]]

  def attend(
    self, attention: Attention, x_BTD: Array, seen_BSD: Array, context: Streams, noise, layer: Array
  ) -> Array:
    """Returns the output of attention for both streams: each sees h, never g."""
    length = context.segment_BT.shape[1]
    keys = attention.key(seen_BSD), attention.value(seen_BSD)
    relative = self.relative(attention, context, seen_BSD.shape[1])
    q_BXNH = attention.query(x_BTD)
    y_BXNH = attention.attend(q_BXNH[:, :length], *keys, context.content, relative, noise, layer)
    if context.query is not None and context.slots is not None:
      g_BTNH = spread(q_BXNH[:, length:], context.slots)
      noise_g = dropout_lib.fork(noise, 'query')
      g_BTNH = attention.attend(g_BTNH, *keys, context.query, relative, noise_g, layer)
      y_BXNH = jnp.concatenate([y_BXNH, pick(g_BTNH, context.slots)], 1)
    return attention.out(y_BXNH)

  def relative(self, attention: Attention, context: Streams, keys: int) -> Relative:
    """Returns the layer's terms by distance and by segment."""
    shape = (self.heads, attention.head_size)
    u_NH, w_NH, z_NH = context.biases or query_biases(self, 'uwz', shape, self.initializer)
    embedding_2NH = param(self, 'segment', ('type', 'heads', 'head'), (2, *shape), self.initializer)
    segment = Segment(z_NH, embedding_2NH, context.segment_BT, context.segment_BS)
    r_RNH = attention.position(context.table_RD)
    return Relative(
      r_RNH, u_NH=u_NH, w_NH=w_NH, segment=segment, direction_B=context.direction_B, far=keys
    )


def make_slots(column_BP: Array, used_BP: Array, length: int) -> Slots:
  """Returns the slots and their inverse."""
  rows, slots = column_BP.shape
  row_B1 = jnp.arange(rows)[:, None]
  slot_BT = jnp.full((rows, length), slots, jnp.int32)
  slot_1P = jnp.broadcast_to(jnp.arange(slots, dtype=jnp.int32)[None], column_BP.shape)
  at_BP = jnp.where(used_BP, column_BP, length)
  return Slots(slot_BT.at[row_B1, at_BP].set(slot_1P, mode='drop'), column_BP, used_BP)


@jax.custom_vjp
def spread(x_BPNH: Array, slots: Slots) -> Array:
  """[B, P, N, H] -> [B, T, N, H]: each used slot at its column, zeros elsewhere. Its transpose is
  `pick`: both are gathers, and neither ever scatters."""
  zero_BPNH = jnp.pad(x_BPNH, ((0, 0), (0, 1), (0, 0), (0, 0)))
  return jnp.take_along_axis(zero_BPNH, slots.slot_BT[:, :, None, None], axis=1)


@jax.custom_vjp
def pick(y_BTNH: Array, slots: Slots) -> Array:
  """[B, T, N, H] -> [B, P, N, H]: what stands at the column of each slot; 0 in unused ones."""
  picked_BPNH = jnp.take_along_axis(y_BTNH, slots.column_BP[:, :, None, None], axis=1)
  return jnp.where(slots.used_BP[:, :, None, None], picked_BPNH, 0)


spread.defvjp(lambda x, slots: (spread(x, slots), slots), lambda slots, d: (pick(d, slots), None))
pick.defvjp(lambda y, slots: (pick(y, slots), slots), lambda slots, d: (spread(d, slots), None))


def seen_pairs(batch: Batch, memory: int) -> tuple[int, int]:
  """Counts the (query, key) pairs that content and query stream see, in a host batch with orders
  whose rows remember `memory` places."""
  order_q_BT, order_k_BT = (np.asarray(batch[f'order_{side}_BT']) for side in 'qk')
  real_BT = np.asarray(batch['example_BT']) > 0
  row_B1 = np.arange(len(real_BT))[:, None] * (4 * real_BT.shape[1])
  # Orders of one row lie above those of the rows before it; padding is above all queries.
  key_n = np.sort(np.where(real_BT, order_k_BT + 1, 3 * real_BT.shape[1]) + row_B1, None)
  before_B1 = np.arange(len(real_BT))[:, None] * real_BT.shape[1]
  seen_BT = np.searchsorted(key_n, order_q_BT + 1 + row_B1) - before_B1 + memory
  own_BT = order_q_BT <= order_k_BT
  row_S, slot_S = np.nonzero(batch['weight_BP'])
  query = seen_BT[row_S, np.asarray(batch['target_pos_BP'])[row_S, slot_S]]
  return int((seen_BT + own_BT)[real_BT].sum()), int(query.sum())
