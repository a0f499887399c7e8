"""The backward pass of the Triton kernel: probabilities are recomputed tile by tile.

Three kernels, none with an atomic addition, so that a gradient is the same to the bit each time:

  keys       a block of keys walks over its queries: dk, dv, and the slopes of the bands, each of
             which holds that of every score
  queries    a block of queries walks over its keys: dq, dsegment, from dband where there is one
  diagonals  the tiles on one diagonal meet the same rows of the bias table: dbias of each row of
             the batch and diagonal, which are then added up outside
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from bertjax.kernels.relative_attention import block_sparsity
from bertjax.kernels.relative_attention.gpu import layout
from bertjax.kernels.relative_attention.gpu import tile as tile_lib
from bertjax.kernels.relative_attention.gpu.tile import BANDS, LOG2E, Plan, Refs
from bertjax.kernels.relative_attention.tuning import Tile
from bertjax.types import Array


def _slopes(
  x: Refs, plan: Plan, q: Array, k: Array, t0: Array, s0: Array
) -> tuple[Array, Array, Array]:
  """Returns a tile's probabilities after dropout, the slopes of its scores, and its rows of dy."""
  line = t0 + jnp.arange(plan.tile.queries)
  score = tile_lib.scores(x, plan, q, k, t0, s0) * LOG2E
  lse = triton.load(x['lse_BNT'].at[line], mask=line < plan.queries, other=0)
  prob = jnp.where(tile_lib.seen(x, plan, t0, s0), jnp.exp2(score - plan.down(lse)), 0.0)
  dy = tile_lib.take(x['dy_BTNH'], line, plan.queries, plan)
  v = tile_lib.keys(x['v_BSNH'], plan, s0)
  dropped = prob
  if plan.rules.rate:
    kept, grow = tile_lib.kept(x, plan, t0, s0), 1.0 / (1.0 - plan.rules.rate)
    dropped = jnp.where(kept, prob * grow, 0.0)
  delta = triton.load(x['delta_BNT'].at[line], mask=line < plan.queries, other=0)
  # `kept` is used once: Triton draws it again for each arrangement of registers that needs it.
  slope = dropped * plan.product(dy, v) - prob * plan.down(delta)
  return dropped, slope, dy


def _queries(x: Refs, out: Refs, *, plan: Plan) -> None:
  t0 = pl.program_id(0) * plan.tile.queries
  line, q = tile_lib.queries(x, plan, t0)

  def step(visit: Array, carry: Refs) -> Refs:
    s0 = x['list_BXJ'][visit] * plan.tile.keys
    k = tile_lib.keys(x['k_BSNH'], plan, s0)
    if 'slope_NBTR' in x:
      slope = tile_lib.load(*tile_lib.shifted(x, 'slope_NBTR', plan, t0, s0))
    else:
      _, slope, _ = _slopes(x, plan, q, k, t0, s0)
    slope = slope.astype(k.dtype)
    add = {'q': tile_lib.dot(slope, k, (1, 0))}
    if 'segment_BNT2' in x:  # sums over keys as products, which need no exchange between threads
      ones = jnp.ones((plan.tile.keys, 16), k.dtype)
      other = jnp.where(tile_lib.differ(x, plan, t0, s0), slope, jnp.zeros_like(slope))
      add['all'], add['other'] = (tile_lib.dot(part, ones, (1, 0)) for part in (slope, other))
    return {name: carry[name] + add[name] for name in carry}

  carry = {'q': jnp.zeros((plan.tile.queries, plan.padded), jnp.float32)}
  if 'segment_BNT2' in x:
    carry['all'] = carry['other'] = jnp.zeros((plan.tile.queries, 16), jnp.float32)
  carry = jax.lax.fori_loop(0, x['count_BX'][...], step, carry)
  tile_lib.put(out['q_BTNH'], t0, carry['q'], plan.queries, plan)
  if 'segment_BNT2' in x:
    every, other = (jnp.max(carry[name], axis=1) for name in ('all', 'other'))  # 16 times each
    for which, sums in enumerate((every - other, other)):
      at = out['segment_BNT2'].at[line, which]
      triton.store(at, sums, mask=line < plan.queries)


def _keys(x: Refs, out: Refs, *, plan: Plan) -> None:
  s0 = pl.program_id(0) * plan.tile.keys
  k = tile_lib.keys(x['k_BSNH'], plan, s0)

  def step(visit: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
    t0 = x['list_BXI'][visit] * plan.tile.queries
    _, q = tile_lib.queries(x, plan, t0)
    prob, slope, dy = _slopes(x, plan, q, k, t0, s0)
    for name in filter(out.__contains__, BANDS):
      at, inside = tile_lib.shifted(out, name, plan, t0, s0)
      triton.store(at, slope.astype(q.dtype), mask=inside)
    dk = tile_lib.dot(slope.astype(q.dtype), q, (1, 0))
    dv = tile_lib.dot(prob.astype(dy.dtype), dy, (1, 0))
    return carry[0] + dk, carry[1] + dv

  zeros = jnp.zeros((plan.tile.keys, plan.padded), jnp.float32)
  dk, dv = jax.lax.fori_loop(0, x['count_BX'][...], step, (zeros, zeros))
  tile_lib.put(out['k_BSNH'], s0, dk, plan.keys, plan)
  tile_lib.put(out['v_BSNH'], s0, dv, plan.keys, plan)


def _diagonals(x: Refs, out: Refs, *, plan: Plan) -> None:
  ahead = pl.program_id(0) - (pl.cdiv(plan.queries, plan.tile.queries) - 1)  # j - i

  def step(visit: Array, carry: list[Array]) -> list[Array]:
    i = x['list_BXI'][visit]
    t0, s0 = i * plan.tile.queries, (i + ahead) * plan.tile.keys
    _, q = tile_lib.queries(x, plan, t0)
    k = tile_lib.keys(x['k_BSNH'], plan, s0)
    _, slope, _ = _slopes(x, plan, q, k, t0, s0)
    parts = tile_lib.unshifted(out['buffer_BNXQK'], plan, slope, t0, s0)
    return [sums + jnp.sum(part, axis=0) for sums, part in zip(carry, parts, strict=True)]

  carry = [jnp.zeros((plan.tile.keys,), jnp.float32)] * plan.pieces
  carry = jax.lax.fori_loop(0, x['count_BX'][...], step, carry)
  for n, sums in enumerate(carry):
    out['bias_BXNR'][pl.ds(n * plan.tile.keys, plan.tile.keys)] = sums


def by_row(part_BXNR: Array, plan: Plan, direction_B: Array | None) -> Array:
  """Sums over the batch and the diagonals, [R, N], of [B, X, N, 2 block]. Entry c of diagonal X is
  for s - t = X block + c - (blocks of queries * block - 1), s and t counted from the first ones."""
  block, memory = plan.tile.keys, plan.keys - plan.queries
  last = pl.cdiv(plan.queries, block) * block - 1

  def along(total_XNR: Array) -> Array:
    """Neighbouring diagonals overlap by half: [X block + block, N] by s - t."""
    x = jnp.moveaxis(total_XNR, 2, 1)  # [X, 2 block, N]
    flat = lambda x: x.reshape(-1, x.shape[-1])
    pad = lambda x, *ends: jnp.pad(x, [ends, (0, 0)])
    return pad(flat(x[:, :block]), 0, block) + pad(flat(x[:, block:]), block, 0)

  def cut(x: Array, start: int) -> Array:
    pads = [(-start, start + plan.rows - x.shape[0], 0), (0, 0, 0)]
    return jax.lax.pad(x, jnp.float32(0), pads)

  far = plan.rules.far
  if direction_B is None:
    return cut(along(jnp.sum(part_BXNR, axis=0)), memory - far + last)
  back_B = (direction_B < 0)[:, None, None, None]
  ahead = along(jnp.sum(jnp.where(back_B, 0.0, part_BXNR), axis=0))
  back = along(jnp.sum(jnp.where(back_B, part_BXNR, 0.0), axis=0))[::-1]
  start = back.shape[0] - 1 - (far + memory + last)
  return cut(ahead, memory - far + last) + cut(back, start)


def backward(
  rules: layout.Rules,
  folded: layout.Folded,
  vectors: layout.Vectors,
  y_BTNH: Array,
  lse_BNT: Array,
  dy_BTNH: Array,
  tiles: Mapping[str, Tile],
  interpret: bool,
) -> layout.Folded:
  """Returns the gradients of the folded operands."""
  dy = dy_BTNH.astype(folded.v_BSNH.dtype)
  delta_BTN = jnp.sum(dy.astype(jnp.float32) * y_BTNH.astype(jnp.float32), axis=-1)
  x = tile_lib.named(folded, vectors)
  x |= dict(lse_BNT=lse_BNT, delta_BNT=jnp.swapaxes(delta_BTN, 1, 2), dy_BTNH=dy)
  plan = lambda name: tile_lib.plan(folded, rules, tiles[name], interpret, name == 'keys')
  seen = lambda plan: layout.seen(vectors, rules, plan.tile.queries, plan.tile.keys)
  like = lambda *names: {n: jax.ShapeDtypeStruct(x[n].shape, x[n].dtype) for n in names if n in x}

  def run(kernel, plan, name, seen_BXY, out, buffer=False):
    count_BX, order_BXY = block_sparsity.visits(seen_BXY)
    operands = x | {name: order_BXY, 'count_BX': count_BX}
    return tile_lib.call(kernel, plan, seen_BXY.shape[1], operands, out, buffer)

  mine = plan('keys')
  seen_BJI = jnp.swapaxes(seen(mine), 1, 2)
  out = like('k_BSNH', 'v_BSNH', *BANDS)
  grads = run(_keys, mine, 'list_BXI', seen_BJI, out)
  if 'band_NBTR' in grads:
    x['slope_NBTR'] = grads['band_NBTR']
  mine = plan('queries')
  grads |= run(_queries, mine, 'list_BXJ', seen(mine), like('q_BTNH', 'segment_BNT2'))
  if folded.bias_NR is not None:
    mine = plan('diagonals')
    assert mine.tile.queries == mine.tile.keys, 'diagonals are of squares'
    seen_BXI = diagonals(seen(mine))
    batch, _, heads, _ = folded.q_BTNH.shape
    shape = (batch, seen_BXI.shape[1], heads, mine.pieces * mine.tile.keys)
    out = dict(bias_BXNR=jax.ShapeDtypeStruct(shape, jnp.float32))
    parts = run(_diagonals, mine, 'list_BXI', seen_BXI, out, True)
    grads['bias_NR'] = by_row(parts['bias_BXNR'], mine, vectors.direction_B).T
  return folded._replace(**{name: grads.get(name) for name in folded._fields})


def diagonals(seen_BIJ: Array) -> Array:
  """Returns the visits by diagonal, j - i + I - 1, and block of queries: bool [B, I + J - 1, I]."""
  _, blocks_q, blocks_k = seen_BIJ.shape
  i = jnp.arange(blocks_q)[None]
  j_XI = jnp.arange(blocks_q + blocks_k - 1)[:, None] - (blocks_q - 1) + i
  inside_XI = (j_XI >= 0) & (j_XI < blocks_k)
  seen_BXI = seen_BIJ[:, jnp.broadcast_to(i, j_XI.shape), jnp.where(inside_XI, j_XI, 0)]
  return seen_BXI & inside_XI[None]
