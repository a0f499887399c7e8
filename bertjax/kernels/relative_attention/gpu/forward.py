"""The attention as a Pallas Triton kernel, forward: online softmax over the blocks of keys.

A program has one block of queries of one row and head, and walks over the blocks of keys that may
hold something visible. It saves the logarithm of the sum (base 2) for the backward pass of
`backward.py`. Tiles are in `tile.py`.
"""

import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from bertjax.kernels import target
from bertjax.kernels.relative_attention import block_sparsity
from bertjax.kernels.relative_attention.gpu import backward as gpu_backward
from bertjax.kernels.relative_attention.gpu import layout
from bertjax.kernels.relative_attention.gpu import tile as tile_lib
from bertjax.kernels.relative_attention.gpu.tile import LEAST, LOG2E, Plan
from bertjax.kernels.relative_attention.operands import Operands
from bertjax.kernels.relative_attention.tuning import Call, Tile, choose
from bertjax.types import Array

SIZE = 128  # a program holds whole heads
INTERPRET = False  # tests run the kernels without a GPU


def _kernel(x: tile_lib.Refs, out: tile_lib.Refs, *, plan: Plan) -> None:
  t0 = pl.program_id(0) * plan.tile.queries
  line, q = tile_lib.queries(x, plan, t0)

  def step(visit: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
    y, most, total = carry
    s0 = x['list_BXJ'][visit] * plan.tile.keys
    k = tile_lib.keys(x['k_BSNH'], plan, s0)
    score = tile_lib.scores(x, plan, q, k, t0, s0)
    seen = tile_lib.seen(x, plan, t0, s0)
    score = jnp.where(seen, score * LOG2E, LEAST)
    new = jnp.maximum(most, jnp.max(score, axis=1))
    prob = jnp.exp2(score - new[:, None])  # 0 where nothing is seen: `new` is far above LEAST
    fade = jnp.exp2(most - new)
    total = total * fade + jnp.sum(prob, axis=1)
    if plan.rules.rate:
      prob = jnp.where(tile_lib.kept(x, plan, t0, s0), prob, 0.0)
    v = tile_lib.keys(x['v_BSNH'], plan, s0)
    return y * fade[:, None] + tile_lib.dot(prob.astype(v.dtype), v, (1, 0)), new, total

  carry = (
    jnp.zeros((plan.tile.queries, plan.padded), jnp.float32),
    jnp.full((plan.tile.queries,), LEAST / 2, jnp.float32),
    jnp.zeros((plan.tile.queries,), jnp.float32),
  )
  y, most, total = jax.lax.fori_loop(0, x['count_BX'][...], step, carry)
  safe = jnp.where(total > 0, total, 1.0)
  y = y / (safe * (1.0 - plan.rules.rate))[:, None]
  tile_lib.put(out['y_BTNH'], t0, y, plan.queries, plan)
  triton.store(out['lse_BNT'].at[line], most + jnp.log2(safe), mask=line < plan.queries)


def tiles(folded: layout.Folded) -> Mapping[str, Tile]:
  """Returns the tile of each kernel."""
  tables = sum(getattr(folded, name) is not None for name in tile_lib.BANDS)
  call = Call.of(folded.q_BTNH, folded.k_BSNH, tables)
  return choose('gpu', target.kind(), call)


def forward(
  folded: layout.Folded, vectors: layout.Vectors, rules: layout.Rules
) -> tuple[Array, Array]:
  """Returns the output [B, T, N, H] and the logarithm to base 2 of each query's sum, [B, N, T]."""
  batch, queries, heads, _ = folded.q_BTNH.shape
  plan = tile_lib.plan(folded, rules, tiles(folded)['forward'], INTERPRET)
  x = tile_lib.named(folded, vectors)
  seen_BIJ = layout.seen(vectors, rules, plan.tile.queries, plan.tile.keys)
  x['count_BX'], x['list_BXJ'] = block_sparsity.visits(seen_BIJ)
  out = {
    'y_BTNH': jax.ShapeDtypeStruct(folded.q_BTNH.shape, folded.v_BSNH.dtype),
    'lse_BNT': jax.ShapeDtypeStruct((batch, heads, queries), jnp.float32),
  }
  out = tile_lib.call(_kernel, plan, seen_BIJ.shape[1], x, out)
  return out['y_BTNH'], out['lse_BNT']


def refusal(x: Operands) -> str | None:
  """Why these operands are not taken, or None."""
  types = {each.dtype.name for each in x[:3]}
  if len(types) > 1 or not types <= {'float32', 'bfloat16'}:
    return f'expected q, k and v all float32 or all bfloat16, got {", ".join(sorted(types))}'
  if x.q_BTNH.shape[-1] > SIZE:
    return f'expected a head size of at most {SIZE}, got {x.q_BTNH.shape[-1]}'
  device = jax.devices()[0]
  if not (target.absent() or INTERPRET):
    if device.platform != 'gpu':
      return f'expected a GPU, got {device.platform}'
    capability = str(device.compute_capability)  # of AMD's a name such as gfx90a
    if not capability[0].isdigit() or float(capability) < 8.0:
      return f'expected an NVIDIA GPU of compute capability 8.0 or above, got {capability}'
  return None


def attend(x: Operands) -> Array:
  """See `relative_attention`; raises NotImplementedError with `refusal`."""
  reason = refusal(x)
  if reason is not None:
    raise NotImplementedError(f"attention: the kernel for GPUs: {reason}; 'xla' takes these")
  folded, vectors, rules = layout.fold(x)
  return _core(rules, folded, vectors)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _core(rules: layout.Rules, folded: layout.Folded, vectors: layout.Vectors) -> Array:
  return forward(folded, vectors, rules)[0]


def _core_forward(rules, folded, vectors):
  y_BTNH, lse_BNT = (checkpoint_name(x, 'attention') for x in forward(folded, vectors, rules))
  return y_BTNH, (folded, vectors, y_BTNH, lse_BNT)


def _core_backward(rules, saved, dy_BTNH):
  folded, vectors, y_BTNH, lse_BNT = saved
  slopes = gpu_backward.backward(
    rules, folded, vectors, y_BTNH, lse_BNT, dy_BTNH, tiles(folded), INTERPRET
  )
  return slopes, None


_core.defvjp(_core_forward, _core_backward)
