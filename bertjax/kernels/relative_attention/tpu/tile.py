"""A tile of the TPU kernels: a block of queries against a block of keys.

The relative term of a tile of b queries and b keys needs 2b - 1 rows of the position table: the
product of the queries with 2b rows is made and each row of it turned left by b - 1 - i, after which
column j holds the distance of query i and key j. Turning is one strided rotation; v4 has none and
takes log2(b) of them under masks. The term of keys and distances is the same with the keys in place
of the queries and the table turned round, transposed.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bertjax.kernels import dropout as dropout_lib
from bertjax.kernels.relative_attention.tpu import layout
from bertjax.kernels.relative_attention.tpu.layout import LANES, Floats, Integers, Shape
from bertjax.types import Array

LEAST = -1e30  # a finite score for what is not visible: the difference of two is no nan
INPUTS = 9  # of every kernel, without the scalars


def turn(x: Array, block: int, back: bool, strided: bool) -> Array:
  """Turns row i of x [b, 2b] left by b - 1 - i, or back."""
  width = x.shape[1]
  if strided and not back:
    return pltpu.roll(x, width - block + 1, 1, stride=1, stride_axis=0)
  left = block - 1 - jax.lax.broadcasted_iota(jnp.int32, x.shape, 0)
  for bit in range((block - 1).bit_length()):
    step = 1 << bit
    turned = pltpu.roll(x, step if back else width - step, 1)
    x = jnp.where(left & step != 0, turned, x)
  return x


def column(row: Array) -> Array:
  """[1, b] as [b, 1]."""
  return jnp.transpose(jnp.broadcast_to(row, (8, row.shape[1])))[:, :1]


def row(column: Array) -> Array:
  """[b, 1] as [1, b]."""
  return jnp.transpose(jnp.broadcast_to(column, (column.shape[0], LANES)))[:1]


def dot(x: Array, y: Array, axes: tuple[int, int]) -> Array:
  """Returns the product over one axis of each, float32."""
  # bfloat16 has one precision; float32 asks for all of it.
  precision = jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None
  numbers = (((axes[0],), (axes[1],)), ((), ()))
  return jax.lax.dot_general(x, y, numbers, precision=precision, preferred_element_type=jnp.float32)


class Tile:
  """One block of queries against one block of keys, of one head, inside a kernel.

  Attributes:
    columns: of the head, in a block.
    q_b, k_b, v_b, r_2b, p_2b: the operands of the tile; `biased` adds u, w or z to the queries.
    seen_bb: the mask.
    other_bb: whether the segments differ.
    score_bb: float32.
  """

  def __init__(self, shape: Shape, refs: Any, where: tuple, row_4B: Any, head: int):
    q_ref, k_ref, v_ref, vectors_ref, r_refs, p_refs, bias_refs, q_info_ref, k_info_ref = refs
    self.shape = shape
    self.batch, group, self.q_block, self.k_block = where
    self.head = group * shape.group + head
    self.row_4B = row_4B
    self.columns = slice(head * shape.wide, (head + 1) * shape.wide)
    self.q_b, self.k_b, self.v_b = (ref[0, :, self.columns] for ref in (q_ref, k_ref, v_ref))
    self.vectors = vectors_ref[:, self.columns]
    self.q_info, self.k_info = q_info_ref[0], k_info_ref[0]
    rows = lambda refs: jnp.concatenate([ref[0, :, self.columns] for ref in refs], 0)
    self.r_2b = rows(r_refs) if shape.position else None
    self.p_2b = rows(p_refs) if shape.by_keys else None
    self.bias_12b = None
    if shape.bias:
      self.bias_12b = jnp.concatenate([ref[0, head] for ref in bias_refs], 1)
    self.seen_bb = self._seen()
    self.score_bb = self._score()

  def biased(self, vector: int) -> Array:
    """Returns the queries with one of the vectors U, W, Z added, float32."""
    return self.q_b.astype(jnp.float32) + self.vectors[vector : vector + 1]

  def _pair(self, name: int) -> tuple[Array, Array]:
    return self.q_info[:, name : name + 1], self.k_info[name : name + 1]

  @property
  def _indices(self) -> tuple[Array, Array]:
    shape = (self.shape.block, self.shape.block)
    t_bb = jax.lax.broadcasted_iota(jnp.int32, shape, 0) + self.q_block * self.shape.block
    s_bb = jax.lax.broadcasted_iota(jnp.int32, shape, 1) + self.k_block * self.shape.block
    return t_bb, s_bb

  def _seen(self) -> Array:
    shape = self.shape
    query, key = self._pair(layout.EXAMPLE)
    t_bb, s_bb = self._indices
    distance_bb = shape.memory + t_bb - s_bb
    seen = (query == key) & (key > 0)
    if shape.order:
      query, key = self._pair(layout.ORDER)
      ahead = query > key
      if shape.see_self:
        ahead |= distance_bb == 0
      seen &= ahead
    if shape.window is not None:
      seen &= (jnp.abs(distance_bb) < shape.window) | (s_bb < shape.sinks)
    if shape.near is not None:
      seen &= distance_bb >= shape.near
    return seen

  def _score(self) -> Array:
    shape = self.shape
    score_bb = dot(self.biased(layout.U).astype(self.k_b.dtype), self.k_b, (1, 1))
    if shape.segment:
      query, key = self._pair(layout.SEGMENT)
      self.other_bb = query != key
      q_z = self.biased(layout.Z)
      of = lambda name: jnp.sum(q_z * self.vectors[name : name + 1], 1, keepdims=True)
      score_bb += jnp.where(self.other_bb, of(layout.OTHER), of(layout.SAME))
    score_bb *= shape.scale
    if shape.position or shape.bias:
      by_distance = jnp.zeros((shape.block, 2 * shape.block), jnp.float32)
      if self.r_2b is not None:
        q_w = self.biased(layout.W).astype(self.r_2b.dtype)
        by_distance = dot(q_w, self.r_2b, (1, 1)) * shape.scale
      if self.bias_12b is not None:
        by_distance += self.bias_12b
      score_bb += turn(by_distance, shape.block, False, shape.strided)[:, : shape.block]
    if self.p_2b is not None:
      by_key = dot(self.k_b, self.p_2b, (1, 1)) * shape.scale
      turned = turn(by_key, shape.block, False, shape.strided)[:, : shape.block]
      score_bb += jnp.transpose(turned)
    return score_bb

  def kept(self) -> Array | None:
    """1 / (1 - rate) where dropout keeps a probability, else 0, [b, b]; or None."""
    shape = self.shape
    if not shape.rate:
      return None
    t_bb, s_bb = self._indices
    head = self.row_4B[3, self.batch] + self.head
    index_bb = (head * shape.queries + t_bb) * shape.keys + s_bb
    first, second = self.row_4B[0, self.batch], self.row_4B[1, self.batch]
    unsigned = lambda x: jax.lax.bitcast_convert_type(x, jnp.uint32)
    bits = dropout_lib.mix(
      unsigned(index_bb + first), unsigned(jnp.full(index_bb.shape, second, jnp.int32))
    )
    keep = bits >= dropout_lib.threshold(shape.rate)
    return jnp.where(keep, 1.0 / (1.0 - shape.rate), 0.0)


def _specs(shape: Shape) -> list[Any]:
  """Returns the blocks of Floats and Integers that a step reads. Steps are (row, group of heads,
  block of queries, visit)."""
  b, lanes = shape.block, shape.lanes
  q_blocks, k_blocks = shape.blocks

  def visited(batch, i, j, index):
    return index[(batch * q_blocks + i) * k_blocks + j]

  def q_map(batch, n, i, j, *_):
    return batch, i, n

  def k_map(batch, n, i, j, count, index, row_4B):
    return batch, visited(batch, i, j, index), n

  def table_map(batch, n, i, j, count, index, row_4B, *, later, kind):
    place = place_of(shape, i, visited(batch, i, j, index), kind == 'keys') + later
    way = row_4B[2, batch]
    return (way, n, 0, place) if kind == 'bias' else (way, place, n)

  def table(kind):
    size_of = (1, shape.group, 1, b) if kind == 'bias' else (1, b, lanes)
    of = functools.partial(functools.partial, table_map, kind=kind)
    return [pl.BlockSpec(size_of, of(later=later)) for later in (0, 1)]

  return [
    pl.BlockSpec((1, b, lanes), q_map),
    pl.BlockSpec((1, b, lanes), k_map),
    pl.BlockSpec((1, b, lanes), k_map),
    pl.BlockSpec((8, lanes), lambda batch, n, i, j, *_: (0, n)),
    table('queries') if shape.position else [],
    table('keys') if shape.by_keys else [],
    table('bias') if shape.bias else [],
    pl.BlockSpec((1, b, 8), lambda batch, n, i, j, *_: (batch, i, 0)),
    pl.BlockSpec(
      (1, 8, b),
      lambda batch, n, i, j, count, index, row_4B: (batch, 0, visited(batch, i, j, index)),
    ),
  ]


def place_of(shape: Shape, q_block: Any, k_block: Any, turned_round: bool) -> Any:
  """Returns the first of the two blocks of a table that a tile reads."""
  place = k_block - q_block + shape.blocks[0] - 1
  return sum(shape.blocks) - 2 - place if turned_round else place


def inputs(shape: Shape, floats: Floats, integers: Integers) -> tuple[list, list, list]:
  """Returns the inputs of every kernel: the scalars, the arrays and their blocks."""
  scalars = [
    integers.visits.count_BI.reshape(-1),
    integers.visits.index_BIJ.reshape(-1),
    integers.row_4B,
  ]
  twice = lambda x: [] if x is None else [x, x]
  arrays = [
    floats.q_BTD, floats.k_BSD, floats.v_BSD, floats.vectors_8D, twice(floats.r_ERD),
    twice(floats.p_ERD), twice(floats.bias_EN1R), integers.q_BT8, integers.k_B8S,
  ]  # fmt: skip
  return scalars, arrays, _specs(shape)


def cost(
  shape: Shape, scalars: list, arrays: list, per_query: list, per_head: list, products: int
) -> pl.CostEstimate:
  """Estimates a kernel's cost as if it visited every block of the grid, re-reads included.

  Args:
    scalars, arrays: from `inputs`.
    per_query, per_head: further arrays, moved once for each block of queries, or written once for
      each group of heads.
    products: tiles of b x b x H that a visit multiplies, per head.
  """
  q, k, v, vectors, r, p, bias, q_info, k_info = arrays
  bytes_of = lambda xs: sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(xs))
  q_blocks, k_blocks = shape.blocks
  groups = shape.rows * shape.groups
  visits = groups * q_blocks * k_blocks
  per_visit = bytes_of([k, v]) // (groups * k_blocks) + bytes_of(k_info) // (shape.rows * k_blocks)
  per_visit += sum(shape.block * shape.lanes * x.dtype.itemsize for x in [*r, *p])
  per_visit += sum(shape.block * shape.group * x.dtype.itemsize for x in bias)
  moved = visits * per_visit + bytes_of(scalars) + bytes_of([q, *per_query, *per_head])
  moved += shape.groups * bytes_of(q_info) + shape.rows * bytes_of(vectors)
  return pl.CostEstimate(
    flops=visits * products * 2 * shape.block**2 * shape.lanes,
    transcendentals=visits * shape.group * shape.block**2,
    bytes_accessed=moved,
  )


def program(shape: Shape, count_ref, index_ref) -> tuple[tuple, Array]:
  """Returns the place of a step, (row, group of heads, block of queries, block of keys), and
  whether it visits that block."""
  q_blocks, k_blocks = shape.blocks
  batch, n, i, j = (pl.program_id(axis) for axis in range(4))
  place = batch * q_blocks + i
  return (batch, n, i, index_ref[place * k_blocks + j]), j < count_ref[place]
