"""The backward pass of the Triton kernel: probabilities are recomputed tile by tile.

Three kernels, none with an atomic addition, so that a gradient is the same to the bit each time:

  queries    a block of queries walks over its keys: dq, dw, dsegment
  keys       a block of keys walks over its queries: dk, dv
  diagonals  the tiles on one diagonal meet the same rows of the tables: dr, dbias of each row of
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
from bertjax.kernels.relative_attention.gpu.tile import LOG2E, Plan, Refs
from bertjax.kernels.relative_attention.tuning import Tile

Array = jax.Array


def _slopes(
  x: Refs, out: Refs, plan: Plan, q: Array, w: Array | None, k: Array, t0: Array, s0: Array
) -> tuple[Array, Array, Array]:
  """Returns a tile's probabilities after dropout, the slopes of its scores, and its rows of dy."""
  line = t0 + jnp.arange(plan.tile.queries)
  score = tile_lib.scores(x, out.get('buffer_BNXQK'), plan, q, w, k, t0, s0) * LOG2E
  lse = triton.load(x['lse_BNT'].at[line], mask=line < plan.queries, other=0)
  prob = jnp.where(tile_lib.seen(x, plan, t0, s0), jnp.exp2(score - lse[:, None]), 0.0)
  dy = tile_lib.take(x['dy_BTNH'], line, plan.queries, plan)
  v = tile_lib.keys(x['v_BSNH'], plan, s0)
  slope = tile_lib.dot(dy, v, (1, 1))
  dropped = prob
  if plan.rules.rate:
    kept, grow = tile_lib.kept(x, plan, t0, s0), 1.0 / (1.0 - plan.rules.rate)
    dropped, slope = jnp.where(kept, prob * grow, 0.0), jnp.where(kept, slope * grow, 0.0)
  delta = triton.load(x['delta_BNT'].at[line], mask=line < plan.queries, other=0)
  return dropped, prob * (slope - delta[:, None]), dy


def _queries(x: Refs, out: Refs, *, plan: Plan) -> None:
  i = pl.program_id(0)
  t0 = i * plan.tile.queries
  line, q, w = tile_lib.queries(x, plan, t0)

  def step(visit: Array, carry: Refs) -> Refs:
    s0 = x['list_BXJ'][visit] * plan.tile.keys
    k = tile_lib.keys(x['k_BSNH'], plan, s0)
    _, slope, _ = _slopes(x, out, plan, q, w, k, t0, s0)
    add = {'q': tile_lib.dot(slope.astype(k.dtype), k, (1, 0))}
    if w is not None:
      add['w'] = jnp.zeros_like(carry['w'])
      for n, part in enumerate(tile_lib.unshifted(out['buffer_BNXQK'], plan, slope, t0, s0)):
        r = tile_lib.piece(x, plan, n, t0, s0)
        add['w'] += tile_lib.dot(part.astype(r.dtype), r, (1, 0))
    if 'segment_BNT2' in x:
      other = tile_lib.differ(x, plan, t0, s0)
      add['other'] = jnp.sum(jnp.where(other, slope, 0.0), axis=1)
      add['same'] = jnp.sum(jnp.where(other, 0.0, slope), axis=1)
    return {name: carry[name] + add[name] for name in carry}

  carry = {'q': jnp.zeros((plan.tile.queries, plan.padded), jnp.float32)}
  if w is not None:
    carry['w'] = jnp.zeros_like(carry['q'])
  if 'segment_BNT2' in x:
    carry['other'] = carry['same'] = jnp.zeros((plan.tile.queries,), jnp.float32)
  carry = jax.lax.fori_loop(0, x['count_BX'][...], step, carry)
  for name in ('q', 'w'):
    if name in carry:
      tile_lib.put(out[f'{name}_BTNH'], t0, carry[name], plan.queries, plan)
  if 'segment_BNT2' in x:
    for which, name in enumerate(('same', 'other')):
      at = out['segment_BNT2'].at[line, which]
      triton.store(at, carry[name], mask=line < plan.queries)


def _keys(x: Refs, out: Refs, *, plan: Plan) -> None:
  s0 = pl.program_id(0) * plan.tile.keys
  k = tile_lib.keys(x['k_BSNH'], plan, s0)

  def step(visit: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
    t0 = x['list_BXI'][visit] * plan.tile.queries
    _, q, w = tile_lib.queries(x, plan, t0)
    prob, slope, dy = _slopes(x, out, plan, q, w, k, t0, s0)
    dk = tile_lib.dot(slope.astype(q.dtype), q, (0, 0))
    dv = tile_lib.dot(prob.astype(dy.dtype), dy, (0, 0))
    return carry[0] + dk, carry[1] + dv

  zeros = jnp.zeros((plan.tile.keys, plan.padded), jnp.float32)
  dk, dv = jax.lax.fori_loop(0, x['count_BX'][...], step, (zeros, zeros))
  tile_lib.put(out['k_BSNH'], s0, dk, plan.keys, plan)
  tile_lib.put(out['v_BSNH'], s0, dv, plan.keys, plan)


def _diagonals(x: Refs, out: Refs, *, plan: Plan) -> None:
  ahead = pl.program_id(0) - (pl.cdiv(plan.queries, plan.tile.queries) - 1)  # j - i

  def step(visit: Array, carry: list[list[Array]]) -> list[list[Array]]:
    i = x['list_BXI'][visit]
    t0, s0 = i * plan.tile.queries, (i + ahead) * plan.tile.keys
    _, q, w = tile_lib.queries(x, plan, t0)
    k = tile_lib.keys(x['k_BSNH'], plan, s0)
    _, slope, _ = _slopes(x, out, plan, q, w, k, t0, s0)
    sums = [list(pieces) for pieces in carry]
    for n, part in enumerate(tile_lib.unshifted(out['buffer_BNXQK'], plan, slope, t0, s0)):
      if w is not None:
        sums[0][n] += tile_lib.dot(part.astype(w.dtype), w, (0, 0))
      if 'bias_NR' in x:
        sums[-1][n] += jnp.sum(part, axis=0)
    return sums

  carry = []
  if 'r_RNH' in x:
    carry.append([jnp.zeros((plan.tile.keys, plan.padded), jnp.float32)] * plan.pieces)
  if 'bias_NR' in x:
    carry.append([jnp.zeros((plan.tile.keys,), jnp.float32)] * plan.pieces)
  carry = jax.lax.fori_loop(0, x['count_BX'][...], step, carry)
  for n in range(plan.pieces):
    first = n * plan.tile.keys
    if 'r_RNH' in x:
      tile_lib.put(out['r_BXNRH'], first, carry[0][n], plan.pieces * plan.tile.keys, plan)
    if 'bias_NR' in x:
      out['bias_BXNR'][pl.ds(first, plan.tile.keys)] = carry[-1][n]


def by_row(part_BXNR: Array, plan: Plan, direction_B: Array | None) -> Array:
  """Sums over the batch and the diagonals, [R, N, ...], of [B, X, N, 2 block, ...]. Entry c of
  diagonal X is for s - t = X block + c - (blocks of queries * block - 1), s and t counted from the
  first ones."""
  block, memory = plan.tile.keys, plan.keys - plan.queries
  last = pl.cdiv(plan.queries, block) * block - 1

  def along(total_XNR: Array) -> Array:
    """Neighbouring diagonals overlap by half: [X block + block, N, ...] by s - t."""
    x = jnp.moveaxis(total_XNR, 2, 1)  # [X, 2 block, N, ...]
    flat = lambda x: x.reshape(-1, *x.shape[2:])
    pad = lambda x, *ends: jnp.pad(x, [ends] + [(0, 0)] * (x.ndim - 1))
    return pad(flat(x[:, :block]), 0, block) + pad(flat(x[:, block:]), block, 0)

  def cut(x: Array, start: int) -> Array:
    pads = [(-start, start + plan.rows - x.shape[0], 0)] + [(0, 0, 0)] * (x.ndim - 1)
    return jax.lax.pad(x, jnp.float32(0), pads)

  far = plan.rules.far
  if direction_B is None:
    return cut(along(jnp.sum(part_BXNR, axis=0)), memory - far + last)
  back_B = (direction_B < 0).reshape(-1, *[1] * (part_BXNR.ndim - 1))
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
  plan = lambda name: tile_lib.plan(folded, rules, tiles[name], interpret)
  seen = lambda plan: layout.seen(vectors, rules, plan.tile.queries, plan.tile.keys)
  like = lambda *names: {n: jax.ShapeDtypeStruct(x[n].shape, x[n].dtype) for n in names if n in x}

  def run(kernel, plan, name, seen_BXY, out, buffer):
    count_BX, order_BXY = block_sparsity.visits(seen_BXY)
    operands = x | {name: order_BXY, 'count_BX': count_BX}
    return tile_lib.call(kernel, plan, seen_BXY.shape[1], operands, out, buffer)

  table, mine = 'r_RNH' in x, plan('queries')
  out = like('q_BTNH', 'w_BTNH', 'segment_BNT2')
  grads = run(_queries, mine, 'list_BXJ', seen(mine), out, table)
  mine = plan('keys')
  seen_BJI = jnp.swapaxes(seen(mine), 1, 2)
  grads |= run(_keys, mine, 'list_BXI', seen_BJI, like('k_BSNH', 'v_BSNH'), table)
  if mine.rows:
    mine = plan('diagonals')
    assert mine.tile.queries == mine.tile.keys, 'diagonals are of squares'
    seen_BXI = diagonals(seen(mine))
    out = _windows(folded, mine, seen_BXI.shape[1])
    parts = run(_diagonals, mine, 'list_BXI', seen_BXI, out, True)
    if folded.r_RNH is not None:
      dr_RNH = by_row(parts['r_BXNRH'], mine, vectors.direction_B)
      grads['r_RNH'] = dr_RNH.astype(folded.r_RNH.dtype)
    if folded.bias_NR is not None:
      grads['bias_NR'] = by_row(parts['bias_BXNR'], mine, vectors.direction_B).T
  return folded._replace(**{name: grads.get(name) for name in folded._fields})


def _windows(folded: layout.Folded, plan: Plan, programs: int) -> Refs:
  """The outputs of the diagonals: sums over the rows of the tables that each of them meets."""
  batch, _, heads, size = folded.q_BTNH.shape
  shape = (batch, programs, heads, plan.pieces * plan.tile.keys)
  out = {}
  if folded.r_RNH is not None:
    out['r_BXNRH'] = jax.ShapeDtypeStruct((*shape, size), jnp.float32)
  if folded.bias_NR is not None:
    out['bias_BXNR'] = jax.ShapeDtypeStruct(shape, jnp.float32)
  return out


def diagonals(seen_BIJ: Array) -> Array:
  """Returns the visits by diagonal, j - i + I - 1, and block of queries: bool [B, I + J - 1, I]."""
  _, blocks_q, blocks_k = seen_BIJ.shape
  i = jnp.arange(blocks_q)[None]
  j_XI = jnp.arange(blocks_q + blocks_k - 1)[:, None] - (blocks_q - 1) + i
  inside_XI = (j_XI >= 0) & (j_XI < blocks_k)
  seen_BXI = seen_BIJ[:, jnp.broadcast_to(i, j_XI.shape), jnp.where(inside_XI, j_XI, 0)]
  return seen_BXI & inside_XI[None]
