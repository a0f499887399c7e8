"""The operands as the kernels read them: heads before length, padded to whole blocks."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bertjax.kernels import dropout as dropout_lib
from bertjax.kernels.relative_attention import block_sparsity, distance_tables
from bertjax.kernels.relative_attention.operands import Dropout, Mask, Relative, nearest

Array = jax.Array

# Rows of `vectors` and columns of `info`.
U, W, Z, SAME, OTHER = range(5)
EXAMPLE, ORDER, GLOBAL, SEGMENT = range(4)


class Shape(NamedTuple):
  """What is static.

  Attributes:
    rows, heads, queries, keys, size: B, N, T, S, H before padding.
    block: queries and keys of a block; all lengths are padded to multiples of it.
    scale: of all terms but the bias.
    near: see `operands.nearest`.
    window, see_self: of the mask.
    order, globals_, position, bias, segment: whether there are such.
    rate: of the dropout; 0 for none.
  """

  rows: int
  heads: int
  queries: int
  keys: int
  size: int
  block: int
  scale: float
  near: int | None
  window: int | None
  see_self: bool
  order: bool
  globals_: bool
  position: bool
  bias: bool
  segment: bool
  rate: float

  @property
  def memory(self) -> int:
    return self.keys - self.queries

  @property
  def blocks(self) -> tuple[int, int]:
    """Blocks of queries and of keys."""
    return -(-self.queries // self.block), -(-self.keys // self.block)

  @property
  def width(self) -> int:
    """Rows of the padded tables over distances."""
    return sum(self.blocks) * self.block


class Floats(NamedTuple):
  """What has a gradient.

  Attributes:
    q_BNTH, k_BNSH, v_BNSH: padded; H to a multiple of 64.
    vectors_N8H: float32, the rows U, W, Z, SAME and OTHER.
    r_ENRH: the position table from the distance memory + T - 1 down, T padded, in the dtype of q;
      E is 1, or 2 where rows have directions: the second one is for the negated distances.
    bias_EN1R: float32, likewise.
  """

  q_BNTH: Array
  k_BNSH: Array
  v_BNSH: Array
  vectors_N8H: Array
  r_ENRH: Array | None
  bias_EN1R: Array | None


class Integers(NamedTuple):
  """What has none.

  Attributes:
    q_BT8, k_B8S: int32 vectors EXAMPLE, ORDER, GLOBAL and SEGMENT of queries and keys.
    visits: of the blocks.
    row_4B: int32: the two words of the dropout, which table, the number of the first head.
  """

  q_BT8: Array
  k_B8S: Array
  visits: block_sparsity.Visits
  row_4B: Array


def pack(
  q_BTNH: Array,
  k_BSNH: Array,
  v_BSNH: Array,
  mask: Mask,
  relative: Relative | None,
  dropout: Dropout | None,
  block: int,
) -> tuple[Shape, Floats, Integers]:
  """Lays the operands out in blocks; differentiable in plain JAX."""
  near = nearest(relative, q_BTNH.shape[1])
  relative = relative or Relative()
  rows, queries, heads, size = q_BTNH.shape
  shape = Shape(
    rows=rows, heads=heads, queries=queries, keys=k_BSNH.shape[1], size=size, block=block,
    scale=size**-0.5 if relative.scale is None else relative.scale, near=near, window=mask.window,
    see_self=mask.see_self, order=mask.order_q_BT is not None,
    globals_=mask.global_q_BT is not None, position=relative.r_RNH is not None,
    bias=relative.bias_NR is not None, segment=relative.segment is not None,
    rate=0.0 if dropout is None else dropout.rate,
  )  # fmt: skip
  spare = -size % 64
  wide = lambda x: jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, spare)])

  def heads_first(x: Array) -> Array:
    return wide(_whole(jnp.swapaxes(x, 1, 2), block, 2))

  floats = Floats(
    heads_first(q_BTNH),
    heads_first(k_BSNH),
    heads_first(v_BSNH),
    wide(_vectors(relative, heads, size)),
    _table(relative.r_RNH, relative, shape, lambda x: wide(x.swapaxes(1, 2)).astype(q_BTNH.dtype)),
    _table(
      None if relative.bias_NR is None else relative.bias_NR.T,
      relative, shape, lambda x: x.swapaxes(1, 2)[:, :, None].astype(jnp.float32),
    ),
  )  # fmt: skip
  return shape, floats, _integers(shape, mask, relative, dropout)


def _whole(x: Array, block: int, axis: int) -> Array:
  pads = [(0, 0)] * x.ndim
  pads[axis] = (0, -x.shape[axis] % block)
  return jnp.pad(x, pads)


def _vectors(relative: Relative, heads: int, size: int) -> Array:
  rows = [relative.u_NH, relative.w_NH, None, None, None, None, None, None]
  if relative.segment is not None:
    rows[Z] = relative.segment.z_NH
    rows[SAME], rows[OTHER] = relative.segment.embedding_2NH
  zeros = jnp.zeros((heads, size), jnp.float32)
  return jnp.stack([zeros if x is None else x.astype(jnp.float32) for x in rows], 1)


def _table(table: Array | None, relative: Relative, shape: Shape, layout: Any) -> Array | None:
  """The rows of a table for all distances of the padded operation, [E, ..]."""
  if table is None:
    return None
  first = shape.memory + shape.blocks[0] * shape.block - 1
  if relative.direction_B is None:
    return layout(distance_tables.span(table, relative.far, first, shape.width)[None])
  ways = jnp.array([1, -1])
  return layout(distance_tables.span(table, relative.far, first, shape.width, ways))


def _integers(shape: Shape, mask: Mask, relative: Relative, dropout: Dropout | None) -> Integers:
  def info(side: str, segment: Array | None) -> list[Array]:
    example = getattr(mask, f'example_{side}')
    columns = [example, getattr(mask, f'order_{side}'), getattr(mask, f'global_{side}'), segment]
    columns = [jnp.zeros_like(example) if x is None else x for x in columns + [None] * 4]
    return [_whole(x.astype(jnp.int32), shape.block, 1) for x in columns]

  segment = relative.segment
  q = info('q_BT', None if segment is None else segment.segment_q_BT)
  k = info('k_BS', None if segment is None else segment.segment_k_BS)
  padded = dataclasses.replace(
    mask, example_q_BT=q[EXAMPLE], example_k_BS=k[EXAMPLE],
    order_q_BT=q[ORDER] if shape.order else None, order_k_BS=k[ORDER] if shape.order else None,
    global_q_BT=q[GLOBAL] > 0 if shape.globals_ else None,
    global_k_BS=k[GLOBAL] > 0 if shape.globals_ else None,
  )  # fmt: skip
  words = [jnp.zeros(shape.rows, jnp.uint32)] * 2
  head = 0
  if dropout is not None:
    words, head = dropout_lib.row_words(dropout.noise, dropout.site), dropout.head
  way_B = jnp.zeros(shape.rows, jnp.int32)
  if relative.direction_B is not None:
    way_B = (relative.direction_B < 0).astype(jnp.int32)
  head_B = jnp.broadcast_to(jnp.asarray(head, jnp.int32), way_B.shape)
  as_int = lambda x: jax.lax.bitcast_convert_type(x, jnp.int32)
  return Integers(
    jnp.stack(q, -1),
    jnp.stack(k, 1),
    block_sparsity.visits(
      block_sparsity.seen(padded, shape.memory, shape.near, shape.block, shape.block)
    ),
    jnp.stack([as_int(words[0]), as_int(words[1]), way_B, head_B]),
  )


def unpack(shape: Shape, y_BNTH: Array) -> Array:
  """[B, T, N, H] of a padded result."""
  return jnp.swapaxes(y_BNTH[:, :, : shape.queries, : shape.size], 1, 2)
