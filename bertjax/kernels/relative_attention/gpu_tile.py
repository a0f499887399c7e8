"""One tile of the attention in a Triton program: its loads, scores, mask, and the shift.

Triton has neither a roll nor a gather of registers. The product of a tile's queries with the rows
of r that it meets, [block_q, block_q + block_k], goes through a buffer of the program in global
memory, in reach of the caches, and comes back with a skewed index. The buffer is a ring of pieces
of block_k rows each: the next block of keys needs one new piece alone.

Operands are dictionaries by name; the letters of a name say which axes its array has, and a
program sees one row of the batch (B) and one head (N) of it.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from bertjax.kernels import dropout as dropout_lib
from bertjax.kernels.relative_attention.fold import Folded, Rules, Vectors

Array = jax.Array
Refs = dict[str, Any]

LOG2E = 1.4426950408889634
LEAST = -1e30  # below every score; finite, so that differences of two of them are numbers


@dataclasses.dataclass(frozen=True)
class Plan:
  """Sizes of the operands and of a tile; `rows` is R, 0 without a table."""

  queries: int
  keys: int
  size: int
  rows: int
  block_q: int
  block_k: int
  rules: Rules
  interpret: bool

  @property
  def padded(self) -> int:
    """Head size as a power of two, as Triton's arrays have."""
    return max(pl.next_power_of_2(self.size), 16)

  @property
  def slots(self) -> int:
    """Pieces of block_k rows of the table that a tile meets."""
    return pl.cdiv(self.block_q + self.block_k - 1, self.block_k)


def plan_of(folded: Folded, rules: Rules, blocks: tuple[int, int], interpret: bool) -> Plan:
  """The plan of a kernel with tiles of `blocks`."""
  queries, size, keys = *folded.q_BTNH.shape[1::2], folded.k_BSNH.shape[1]
  table = folded.r_RNH if folded.r_RNH is not None else folded.bias_NR
  rows = 0 if table is None else max(table.shape[0 if table is folded.r_RNH else 1], 0)
  return Plan(queries, keys, size, rows, *blocks, rules, interpret)


def named(folded: Folded, vectors: Vectors) -> Refs:
  """The operands that are there, by name."""
  return {k: x for k, x in (folded._asdict() | vectors._asdict()).items() if x is not None}


def call(
  kernel: Callable, plan: Plan, grid: tuple[int, ...], x: Refs, out: Refs, stages: int = 2
) -> Refs:
  """Runs a kernel over the grid (X, N, B); it has the operands' and the outputs' references.

  Of an axis X, N or B a program has its own entry; of the other axes everything.
  """

  def spec(name: str, shape: tuple[int, ...]) -> pl.BlockSpec:
    axes = name.rsplit('_', 1)[-1]
    assert len(axes) == len(shape), (name, shape)
    block = tuple(None if a in 'XNB' else n for a, n in zip(axes, shape, strict=True))
    mine = lambda *ids: tuple(ids['XNB'.index(a)] if a in 'XNB' else 0 for a in axes)
    return pl.BlockSpec(block, mine)

  return pl.pallas_call(
    functools.partial(kernel, plan=plan),
    out_shape=out,
    grid=grid,
    in_specs=[{name: spec(name, array.shape) for name, array in x.items()}],
    out_specs={name: spec(name, array.shape) for name, array in out.items()},
    compiler_params=triton.CompilerParams(
      num_warps=4 if plan.padded <= 64 else 8,
      # Loads of the ring must not be moved to an earlier step, before the stores they wait for.
      num_stages=1 if any(name.startswith('ring') for name in out) else stages,
    ),
    interpret=plan.interpret,
    name=kernel.__name__.strip('_'),
  )(x)


def ring(plan: Plan, programs: tuple[int, ...]) -> Refs:
  """The buffer of `shifted`, as an output that nobody reads."""
  shape = (*programs, plan.block_q, plan.slots * plan.block_k)
  return {'ring_BNXQK': jax.ShapeDtypeStruct(shape, jnp.float32)}


def dot(a: Array, b: Array, contract: tuple[int, int]) -> Array:
  """A product on the tensor cores, summed in float32; float32 operands keep their precision."""
  precision = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
  axes = (((contract[0],), (contract[1],)), ((), ()))
  return jax.lax.dot_general(a, b, axes, precision, preferred_element_type=jnp.float32)


def visited(list_ref: Any, visit: Array) -> tuple[Array, Array]:
  """The block of a visit, and whether the visit before was not to the block before it."""
  j = list_ref[visit]
  return j, (visit == 0) | (list_ref[jnp.maximum(visit - 1, 0)] != j - 1)


def barrier(plan: Plan) -> None:
  """What the program's threads stored is there for all of them."""
  if not plan.interpret:
    triton.debug_barrier()


def vector(ref: Any, first: Array, count: int, limit: int) -> Array:
  """Entries first .. first + count - 1 of a vector; 0 from `limit` on."""
  index = first + jnp.arange(count)
  return triton.load(ref.at[index], mask=index < limit, other=0)


def take(ref: Any, index: Array, limit: int, plan: Plan) -> Array:
  """Rows of an [L, H] array, [count, H padded]; zeros where the index is not in [0, limit)."""
  column = jnp.arange(plan.padded)
  inside = ((index >= 0) & (index < limit))[:, None] & (column < plan.size)[None]
  safe = jnp.where((index >= 0) & (index < limit), index, 0)
  return triton.load(ref.at[safe[:, None], column[None]], mask=inside, other=0)


def put(ref: Any, first: Array | int, x: Array, limit: int, plan: Plan) -> None:
  """Stores rows first .. of an [L, H] array, as far as they exist."""
  index, column = first + jnp.arange(x.shape[0]), jnp.arange(plan.padded)
  inside = (index < limit)[:, None] & (column < plan.size)[None]
  triton.store(ref.at[index[:, None], column[None]], x.astype(ref.dtype), mask=inside)


def _distance(plan: Plan, t0: Array, s0: Array) -> Array:
  """Distances of a tile, int32 [block_q, block_k]."""
  t = jax.lax.broadcasted_iota(jnp.int32, (plan.block_q, plan.block_k), 0)
  s = jax.lax.broadcasted_iota(jnp.int32, (plan.block_q, plan.block_k), 1)
  return plan.keys - plan.queries + t0 - s0 + t - s


def seen(x: Refs, plan: Plan, t0: Array, s0: Array) -> Array:
  """The mask of a tile, bool [block_q, block_k]; `reference.visible`."""
  rules = plan.rules
  mine = lambda name: vector(x[f'{name}_q_BT'], t0, plan.block_q, plan.queries)[:, None]
  theirs = lambda name: vector(x[f'{name}_k_BS'], s0, plan.block_k, plan.keys)[None]
  distance = _distance(plan, t0, s0)
  out = (mine('example') == theirs('example')) & (mine('example') > 0)
  if 'order_q_BT' in x:
    ahead = mine('order') > theirs('order')
    if rules.see_self:
      ahead = ahead | (distance == 0)
    out = out & ahead
  if rules.window is not None:
    near = (distance < rules.window) & (distance > -rules.window)
    if 'global_q_BT' in x:
      near = near | (mine('global') > 0) | (theirs('global') > 0)
    out = out & near
  if rules.near is not None:
    out = out & (distance >= rules.near)
  return out


def kept(x: Refs, plan: Plan, t0: Array, s0: Array) -> Array:
  """Where dropout keeps the probability, bool [block_q, block_k]; `reference._drop`."""
  shape = (plan.block_q, plan.block_k)
  query = (t0 + jax.lax.broadcasted_iota(jnp.int32, shape, 0)).astype(jnp.uint32)
  key = (s0 + jax.lax.broadcasted_iota(jnp.int32, shape, 1)).astype(jnp.uint32)
  index = (x['head_N'][...] * plan.queries + query) * plan.keys + key
  bits = dropout_lib.mix(x['word_B2'][0] + index, x['word_B2'][1])
  return bits >= round(plan.rules.rate * 2**32)


def _row(x: Refs, plan: Plan, distance: Array) -> Array:
  """The table's row of each distance."""
  if 'direction_B' in x:
    distance = distance * x['direction_B'][...]
  return plan.rules.far - distance


def piece(x: Refs, plan: Plan, k: int, t0: Array, s0: Array) -> Array:
  """The k-th piece of the rows of r that a tile meets, [block_k, H].

  Its c-th row is for s - t = k block_k + c - (block_q - 1), counted within the tile.
  """
  ahead = k * plan.block_k + jnp.arange(plan.block_k) - (plan.block_q - 1)
  distance = plan.keys - plan.queries + t0 - s0 - ahead
  return take(x['r_RNH'], _row(x, plan, distance), plan.rows, plan)


def shifted(
  x: Refs, ring: Any, plan: Plan, w: Array, t0: Array, j: Array, fresh: Array | bool
) -> Array:
  """w . r[row] for the pairs of a tile, float32 [block_q, block_k].

  Args:
    x: the operands.
    ring: the program's buffer, [block_q, slots * block_k].
    plan: sizes.
    w: the tile's queries.
    t0: its first query.
    j: its block of keys.
    fresh: whether the last tile was not the one of block j - 1, so that all pieces are new.
  """
  s0 = j * plan.block_k
  line, column = jnp.arange(plan.block_q), jnp.arange(plan.block_k)

  def fill(k: int) -> None:
    slot = jax.lax.rem(j + k, plan.slots)
    index = (slot * plan.block_k + column)[None]
    product = dot(w, piece(x, plan, k, t0, s0), (1, 1))
    triton.store(ring.at[line[:, None], index], product)

  if fresh is True:
    for k in range(plan.slots - 1):
      fill(k)
  else:

    @pl.when(fresh)
    def _() -> None:
      for k in range(plan.slots - 1):
        fill(k)

  fill(plan.slots - 1)
  barrier(plan)
  at = column[None] - line[:, None] + (plan.block_q - 1)
  slot = jax.lax.rem(j + at // plan.block_k, plan.slots)
  out = triton.load(ring.at[line[:, None], slot * plan.block_k + at % plan.block_k])
  barrier(plan)  # all have read before the next tile writes
  return out


def scores(
  x: Refs, ring: Any, plan: Plan, q: Array, w: Array | None, k: Array, t0: Array, j: Array, fresh
) -> Array:
  """float32 [block_q, block_k], before the mask."""
  s0 = j * plan.block_k
  out = dot(q, k, (1, 1))
  if w is not None:
    out = out + shifted(x, ring, plan, w, t0, j, fresh)
  if 'bias_NR' in x:
    row = _row(x, plan, _distance(plan, t0, s0))
    inside = (row >= 0) & (row < plan.rows)
    out = out + triton.load(x['bias_NR'].at[jnp.where(inside, row, 0)], mask=inside, other=0)
  if 'segment_BNT2' in x:
    other = differ(x, plan, t0, s0)
    line = t0 + jnp.arange(plan.block_q)
    either = [
      triton.load(x['segment_BNT2'].at[line, which], mask=line < plan.queries, other=0)[:, None]
      for which in (0, 1)
    ]
    out = out + jnp.where(other, either[1], either[0])
  return out


def differ(x: Refs, plan: Plan, t0: Array, s0: Array) -> Array:
  """Whether query and key have different segments, bool [block_q, block_k]."""
  mine = vector(x['segment_q_BT'], t0, plan.block_q, plan.queries)[:, None]
  return mine != vector(x['segment_k_BS'], s0, plan.block_k, plan.keys)[None]
