"""The operands as the kernels read them: as the projections write them, padded to whole blocks.

A block holds whole lanes, 128 of them: two heads of 64, one of 128.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bertjax.kernels import dropout as dropout_lib
from bertjax.kernels.relative_attention import block_sparsity, distance_tables
from bertjax.kernels.relative_attention.operands import Dropout, Mask, Operands, Relative
from bertjax.types import Array

# Rows of `vectors` and columns of `info`.
U, W, Z, SAME, OTHER = range(5)
EXAMPLE, ORDER, SEGMENT = range(3)
LANES = 128  # of a register, and of a tile of memory


class Shape(NamedTuple):
  """Static sizes and options of the operation."""

  # rows, heads, queries, keys, size: B, N, T, S, H before padding
  rows: int
  heads: int
  queries: int
  keys: int
  size: int
  block: int  # queries and keys of a block; all lengths are padded to multiples of it
  # wide, group: H, padded to a multiple of 64; heads of a block, to multiples of which N is padded
  wide: int
  group: int
  # scale, near, window, sinks, see_self: of `Operands` and its mask
  scale: float
  near: int | None
  window: int | None
  sinks: int
  see_self: bool
  # order, position, by_keys, bias, segment: True if the operation has them
  order: bool
  position: bool
  by_keys: bool
  bias: bool
  segment: bool
  rate: float  # rate of the dropout; 0: none
  # The gradients of keys and values leave in the dtype of these, with the sums beside them.
  narrow: bool = False
  strided: bool = True  # the device has a strided rotation
  interpret: bool = False  # the kernels run without a TPU, slowly

  @property
  def memory(self) -> int:
    return self.keys - self.queries

  @property
  def blocks(self) -> tuple[int, int]:
    """Blocks of queries and of keys."""
    return -(-self.queries // self.block), -(-self.keys // self.block)

  @property
  def groups(self) -> int:
    """Blocks of heads."""
    return -(-self.heads // self.group)

  @property
  def lanes(self) -> int:
    """Columns of a block of heads."""
    return self.group * self.wide

  @property
  def width(self) -> int:
    """Rows of the padded tables over distances."""
    return sum(self.blocks) * self.block


class Floats(NamedTuple):
  """The operands that have a gradient, padded; D is padded N times padded H. vectors_8D, float32,
  has the rows U, W, Z, SAME and OTHER. The position table r_ERD, in the dtype of q, and the biases
  begin with the distance memory + T - 1; E is 1, or 2 with rows for the negated distances
  behind. The table of keys p_ERD is that of `Relative` turned round, its last row but one first."""

  q_BTD: Array
  k_BSD: Array
  v_BSD: Array
  vectors_8D: Array
  r_ERD: Array | None
  p_ERD: Array | None
  bias_EN1R: Array | None


class Integers(NamedTuple):
  """The operands that have no gradient: int32 vectors EXAMPLE, ORDER and SEGMENT of queries
  and keys, the blocks to visit, and of each row the two words of the dropout, the index of its
  table and the number of the first head."""

  q_BT8: Array
  k_B8S: Array
  visits: block_sparsity.Visits
  row_4B: Array


def pack(x: Operands, block: int) -> tuple[Shape, Floats, Integers]:
  """Lays the operands out in blocks; differentiable in plain JAX."""
  mask, relative, dropout = x.mask, x.relative or Relative(), x.dropout
  rows, queries, heads, size = x.q_BTNH.shape
  wide, group = columns(size)
  shape = Shape(
    rows=rows, heads=heads, queries=queries, keys=x.k_BSNH.shape[1], size=size,
    block=block, wide=wide, group=group, scale=x.scale, near=x.nearest, window=mask.window,
    sinks=mask.sinks, see_self=mask.see_self, order=mask.order_q_BT is not None,
    position=relative.r_RNH is not None,
    by_keys=relative.p_RNH is not None, bias=relative.bias_NR is not None,
    segment=relative.segment is not None, rate=0.0 if dropout is None else dropout.rate,
  )  # fmt: skip
  long = lambda x_BTNH: whole(flat(shape, x_BTNH), block, 1)
  rows_of = lambda r: flat(shape, r).astype(x.q_BTNH.dtype)
  floats = Floats(
    long(x.q_BTNH),
    long(x.k_BSNH),
    long(x.v_BSNH),
    flat(shape, _vectors(relative, heads, size)),
    _table(relative.r_RNH, relative, shape, rows_of),
    _table(relative.p_RNH, relative, shape, lambda p: jnp.roll(rows_of(p)[:, ::-1], -1, 1)),
    _table(
      relative.bias_NR.T if relative.bias_NR is not None else None,
      relative, shape,
      lambda x: whole(x.swapaxes(1, 2), shape.group, 1)[:, :, None].astype(jnp.float32),
    ),
  )  # fmt: skip
  return shape, floats, _integers(shape, mask, relative, dropout)


def columns(size: int) -> tuple[int, int]:
  """H, padded to a multiple of 64, and how many heads of that fill whole lanes."""
  wide = size + -size % 64
  return wide, 2 if wide % LANES else 1


def flat(shape: Shape, x_NH: Array) -> Array:
  """[.., N, H] as [.., D], which without padding moves nothing."""
  spare = [(0, -shape.heads % shape.group), (0, shape.wide - shape.size)]
  x_NH = jnp.pad(x_NH, [(0, 0)] * (x_NH.ndim - 2) + spare)
  return x_NH.reshape(*x_NH.shape[:-2], -1)


def heads_of(shape: Shape, x_D: Array) -> Array:
  """Returns the inverse of `flat`."""
  x_NH = x_D.reshape(*x_D.shape[:-1], -1, shape.wide)
  return x_NH[..., : shape.heads, : shape.size]


def whole(x: Array, block: int, axis: int) -> Array:
  """x, padded to whole blocks."""
  pads = [(0, 0)] * x.ndim
  pads[axis] = (0, -x.shape[axis] % block)
  return jnp.pad(x, pads)


def _vectors(relative: Relative, heads: int, size: int) -> Array:
  rows = [relative.u_NH, relative.w_NH, None, None, None, None, None, None]
  if relative.segment is not None:
    rows[Z] = relative.segment.z_NH
    rows[SAME], rows[OTHER] = relative.segment.embedding_2NH
  zeros = jnp.zeros((heads, size), jnp.float32)
  return jnp.stack([zeros if x is None else x.astype(jnp.float32) for x in rows])


def _table(table: Array | None, relative: Relative, shape: Shape, layout: Any) -> Array | None:
  """Returns the rows of a table for all distances of the padded operation, [E, ..]."""
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
    columns = [example, getattr(mask, f'order_{side}'), segment]
    columns = [jnp.zeros_like(example) if x is None else x for x in columns + [None] * 5]
    return [whole(x.astype(jnp.int32), shape.block, 1) for x in columns]

  segment = relative.segment
  q = info('q_BT', None if segment is None else segment.segment_q_BT)
  k = info('k_BS', None if segment is None else segment.segment_k_BS)
  padded = dataclasses.replace(
    mask, example_q_BT=q[EXAMPLE], example_k_BS=k[EXAMPLE],
    order_q_BT=q[ORDER] if shape.order else None, order_k_BS=k[ORDER] if shape.order else None,
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


def unpack(shape: Shape, y_BTD: Array) -> Array:
  """Returns a padded result as [B, T, N * H]."""
  y_BTNH = heads_of(shape, y_BTD[:, : shape.queries])
  return y_BTNH.reshape(shape.rows, shape.queries, shape.heads * shape.size)
