"""One tile of the attention in a Triton program: its loads, scores, mask, and the shift.

The products with positions come as a band (`layout.Folded`) whose rows are read at shifted
addresses. Triton has neither a roll nor a gather of registers: where slopes are summed along
diagonals, for the gradient of a bias table, a tile goes through a buffer of the program in global
memory, in reach of the caches, and is read back shifted, in pieces of block_k columns.

Operands are dictionaries by name; the letters of a name say which axes its array has, and a
program sees one row of the batch (B) and one head (N) of it.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from bertjax.kernels import dropout as dropout_lib
from bertjax.kernels.relative_attention.gpu.layout import Folded, Rules, Vectors
from bertjax.kernels.relative_attention.tuning import Tile
from bertjax.types import Array

Refs = dict[str, Any]

BANDS = ('band_NBTR', 'by_keys_NBSR')  # of `layout.Folded`
LOG2E = 1.4426950408889634
LEAST = -1e30  # below every score; finite, so that differences of two of them are numbers


@dataclasses.dataclass(frozen=True)
class Plan:
  """Sizes of the operands, and the tile; `rows` is R of the bias table, 0 without one. A tile is
  [block_q, block_k], or [block_k, block_q] where it is turned."""

  queries: int
  keys: int
  size: int
  rows: int
  tile: Tile
  rules: Rules
  interpret: bool
  turned: bool = False

  def down(self, x: Array) -> Array:
    """Returns a vector of a tile's queries, with the axis of its keys."""
    return x[None] if self.turned else x[:, None]

  def across(self, x: Array) -> Array:
    """Returns a vector of a tile's keys, with the axis of its queries."""
    return x[:, None] if self.turned else x[None]

  def product(self, mine: Array, theirs: Array) -> Array:
    """Returns the products of a tile's queries, [block_q, H], and keys, [block_k, H]."""
    return dot(theirs, mine, (1, 1)) if self.turned else dot(mine, theirs, (1, 1))

  @property
  def padded(self) -> int:
    """Head size as a power of two, as Triton's arrays have."""
    return max(pl.next_power_of_2(self.size), 16)

  @property
  def pieces(self) -> int:
    """Number of pieces of `tile.keys` rows of the table that a tile meets."""
    return pl.cdiv(self.tile.queries + self.tile.keys - 1, self.tile.keys)


def plan(folded: Folded, rules: Rules, tile: Tile, interpret: bool, turned: bool = False) -> Plan:
  """Returns the plan of a kernel."""
  _, queries, _, size = folded.q_BTNH.shape
  rows = 0 if folded.bias_NR is None else folded.bias_NR.shape[1]
  return Plan(queries, folded.k_BSNH.shape[1], size, rows, tile, rules, interpret, turned)


def named(folded: Folded, vectors: Vectors) -> Refs:
  """Returns the operands that are there, by name."""
  return {k: x for k, x in (folded._asdict() | vectors._asdict()).items() if x is not None}


def call(
  kernel: Callable, plan: Plan, programs: int, x: Refs, out: Refs, buffer: bool = False
) -> Refs:
  """Runs a kernel over the grid (X, N, B) with the references of operands and outputs: of these
  axes a program has its own entry, of others everything. The buffer is an output that nobody reads,
  whose rows are longer than a tile's (`unshifted`). Bands among the outputs begin as zeros."""

  def spec(name: str, shape: tuple[int, ...]) -> pl.BlockSpec:
    axes = name.rsplit('_', 1)[-1]
    assert len(axes) == len(shape), (name, shape)
    block = tuple(None if a in 'XNB' else n for a, n in zip(axes, shape, strict=True))
    mine = lambda *ids: tuple(ids['XNB'.index(a)] if a in 'XNB' else 0 for a in axes)
    return pl.BlockSpec(block, mine)

  batch, _, heads, _ = x['q_BTNH'].shape
  tile = plan.tile
  if buffer:
    shape = (batch, heads, programs, tile.queries, tile.keys + 4)
    out = out | {'buffer_BNXQK': jax.ShapeDtypeStruct(shape, jnp.float32)}
  bands = list(filter(out.__contains__, BANDS))
  for n, name in enumerate(bands):
    # No constant: XLA would fill those of all layers at once, and hold them; nor the same value for
    # both, which it would fill once and copy.
    zero = jnp.minimum(jnp.abs(x['dy_BTNH'][0, 0, 0, n]), 0)
    x = x | {f'zeros_{name}': jnp.full(out[name].shape, zero, out[name].dtype)}
  aliases = {sorted(x).index(f'zeros_{name}'): sorted(out).index(name) for name in bands}
  return pl.pallas_call(
    functools.partial(kernel, plan=plan),
    out_shape=out,
    grid=(programs, heads, batch),
    in_specs=[{name: spec(name, array.shape) for name, array in x.items()}],
    out_specs={name: spec(name, array.shape) for name, array in out.items()},
    compiler_params=triton.CompilerParams(
      num_warps=tile.warps,
      # Loads of the buffer must not be moved to an earlier step, before the stores they wait for.
      num_stages=1 if buffer else tile.stages,
    ),
    input_output_aliases=aliases,
    interpret=plan.interpret,
    name=kernel.__name__.strip('_'),
  )(x)


def dot(a: Array, b: Array, contract: tuple[int, int]) -> Array:
  """Returns a product on the tensor cores, summed in float32. Float32 operands are multiplied as
  `jax.default_matmul_precision` says: TF32 on a GPU, and float32 with 'highest'."""
  axes = (((contract[0],), (contract[1],)), ((), ()))
  return jax.lax.dot_general(a, b, axes, preferred_element_type=jnp.float32)


def barrier(plan: Plan) -> None:
  """Waits until every thread of the program sees what all of them stored."""
  if not plan.interpret:
    triton.debug_barrier()


def vector(ref: Any, first: Array, count: int, limit: int) -> Array:
  """Entries first .. first + count - 1 of a vector; 0 from `limit` on."""
  index = first + jnp.arange(count)
  return triton.load(ref.at[index], mask=index < limit, other=0)


def take(ref: Any, index: Array, limit: int, plan: Plan) -> Array:
  """Rows of an [L, H] array, [count, H padded]; an index outside has the nearest row. What is
  outside of an array is seen by nobody and sees nothing, so any finite numbers do."""
  index, column = jnp.clip(index, 0, limit - 1)[:, None], jnp.arange(plan.padded)[None]
  if plan.padded == plan.size:
    return triton.load(ref.at[index, column])
  inside = jnp.broadcast_to(column < plan.size, (index.shape[0], plan.padded))
  return triton.load(ref.at[index, column], mask=inside, other=0)


def queries(x: Refs, plan: Plan, t0: Array | int) -> tuple[Array, Array]:
  """Returns the lines of a block of queries, and their q."""
  line = t0 + jnp.arange(plan.tile.queries)
  return line, take(x['q_BTNH'], line, plan.queries, plan)


def keys(ref: Any, plan: Plan, s0: Array | int) -> Array:
  """Returns the rows of a block of keys."""
  return take(ref, s0 + jnp.arange(plan.tile.keys), plan.keys, plan)


def put(ref: Any, first: Array | int, x: Array, limit: int, plan: Plan) -> None:
  """Stores rows first .. of an [L, H] array, as far as they exist."""
  index, column = first + jnp.arange(x.shape[0]), jnp.arange(plan.padded)
  inside = (index < limit)[:, None] & (column < plan.size)[None]
  triton.store(ref.at[index[:, None], column[None]], x.astype(ref.dtype), mask=inside)


def _distance(plan: Plan, t0: Array, s0: Array) -> Array:
  """Distances of a tile, int32."""
  first = plan.keys - plan.queries + t0 - s0
  line, key = jnp.arange(plan.tile.queries), jnp.arange(plan.tile.keys)
  return plan.down(first + line) - plan.across(key)


def _mine(x: Refs, plan: Plan, t0: Array, name: str) -> Array:
  return plan.down(vector(x[f'{name}_q_BT'], t0, plan.tile.queries, plan.queries))


def _theirs(x: Refs, plan: Plan, s0: Array, name: str) -> Array:
  return plan.across(vector(x[f'{name}_k_BS'], s0, plan.tile.keys, plan.keys))


def seen(x: Refs, plan: Plan, t0: Array, s0: Array) -> Array:
  """Returns the mask of a tile, bool; `reference.visible`."""
  rules = plan.rules
  mine, theirs = (functools.partial(_mine, x, plan, t0), functools.partial(_theirs, x, plan, s0))
  distance = _distance(plan, t0, s0)
  example = mine('example')
  out = jnp.where(example > 0, example, -1) == theirs('example')
  if 'order_q_BT' in x:
    ahead = mine('order') > theirs('order')
    if rules.see_self:
      ahead = ahead | (distance == 0)
    out = out & ahead
  if rules.window is not None:
    near = (distance < rules.window) & (distance > -rules.window)
    if rules.sinks:
      near = near | (plan.across(s0 + jnp.arange(plan.tile.keys)) < rules.sinks)
    out = out & near
  if rules.near is not None:
    out = out & (distance >= rules.near)
  return out


def kept(x: Refs, plan: Plan, t0: Array, s0: Array) -> Array:
  """Returns bool of a tile, True if dropout keeps the entry: see `reference._drop`."""
  query = x['head_N'][...] * plan.queries + (t0 + jnp.arange(plan.tile.queries)).astype(jnp.uint32)
  key = (s0 + jnp.arange(plan.tile.keys)).astype(jnp.uint32)
  index = plan.down(query * plan.keys) + plan.across(key)
  bits = dropout_lib.mix(x['word_B2'][0] + index, x['word_B2'][1])
  return bits >= round(plan.rules.rate * 2**32)


def _row(x: Refs, plan: Plan, distance: Array) -> Array:
  """Returns the table's row of each distance."""
  if 'direction_B' in x:
    distance = distance * x['direction_B'][...]
  return plan.rules.far - distance


def shifted(x: Refs, name: str, plan: Plan, t0: Array, s0: Array) -> tuple[Any, Array | None]:
  """Returns a tile's entries of one of BANDS, and which of them exist; None: all do in every
  tile."""
  line = plan.down(t0 + jnp.arange(plan.tile.queries))
  key = plan.across(s0 + jnp.arange(plan.tile.keys))
  by_keys = name == 'by_keys_NBSR'
  mine, other, count = (key, line, plan.keys) if by_keys else (line, key, plan.queries)
  at = x[name].at[mine, (count - 1 - mine) + other]
  if plan.queries % plan.tile.queries == 0 and plan.keys % plan.tile.keys == 0:
    return at, None
  return at, (line < plan.queries) & (key < plan.keys)


def load(at: Any, inside: Array | None) -> Array:
  """Loads entries as float32; 0 where there is none."""
  other = None if inside is None else 0
  return triton.load(at, mask=inside, other=other).astype(jnp.float32)


def unshifted(buffer: Any, plan: Plan, slope: Array, t0: Array, s0: Array) -> Iterator[Array]:
  """Yields, for each piece of the table's rows that a tile meets, its slopes by row, [block_q,
  block_k]. The c-th row of piece k is for s - t = k block_k + c - (block_q - 1) within the tile."""
  line = jnp.arange(plan.tile.queries)[:, None]
  barrier(plan)
  triton.store(buffer.at[line, jnp.arange(plan.tile.keys)[None]], slope)
  barrier(plan)
  for k in range(plan.pieces):
    # The zero depends on the visit: else these arrays would stay in registers over the whole loop.
    zero = jax.lax.shift_right_logical(t0 | s0, 30)
    first = zero + (k * plan.tile.keys - (plan.tile.queries - 1))
    s = (first + jnp.arange(plan.tile.queries))[:, None] + jnp.arange(plan.tile.keys)[None]
    inside = (s >= 0) & (s < plan.tile.keys)
    # A GPU does not read what is masked; interpreted, it is read, and must be there.
    at = jnp.where(inside, s, 0) if plan.interpret else s
    yield triton.load(buffer.at[line, at], mask=inside, other=0)


def scores(x: Refs, plan: Plan, q: Array, k: Array, t0: Array, s0: Array) -> Array:
  """Returns the scores of a tile before the mask, float32."""
  out = plan.product(q, k)
  for name in filter(x.__contains__, BANDS):
    out = out + load(*shifted(x, name, plan, t0, s0))
  if 'bias_NR' in x:
    row = _row(x, plan, _distance(plan, t0, s0))
    inside = (row >= 0) & (row < plan.rows)
    out = out + triton.load(x['bias_NR'].at[jnp.where(inside, row, 0)], mask=inside, other=0)
  if 'segment_BNT2' in x:
    other = differ(x, plan, t0, s0)
    line = t0 + jnp.arange(plan.tile.queries)
    either = [
      plan.down(triton.load(x['segment_BNT2'].at[line, which], mask=line < plan.queries, other=0))
      for which in (0, 1)
    ]
    out = out + jnp.where(other, either[1], either[0])
  return out


def differ(x: Refs, plan: Plan, t0: Array, s0: Array) -> Array:
  """Returns bool of a tile, True if query and key have different segments."""
  return _mine(x, plan, t0, 'segment') != _theirs(x, plan, s0, 'segment')
