"""The backward pass of the TPU kernel.

One kernel goes over the same tiles as the forward pass and recomputes their probabilities. The
gradient of a block of queries is summed up while it stays; those of keys, values and tables stay in
fast memory, in float32, for all tiles of a row and block of heads.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bertjax.kernels.relative_attention.tpu import layout
from bertjax.kernels.relative_attention.tpu import tile as tile_lib
from bertjax.kernels.relative_attention.tpu.layout import LANES, Floats, Integers, Shape
from bertjax.kernels.relative_attention.tpu.tile import INPUTS, dot
from bertjax.types import Array

_TILE_BYTES = 2**24  # of a tile's operands and scores


def _vmem_bytes(spec: Any) -> int:
  """Bytes of a block of float32, as fast memory lays it out: in whole tiles."""
  if isinstance(spec, list):
    return 0
  *leading, rows, columns = spec.block_shape
  return math.prod(leading) * -(-rows // 8) * 8 * -(-columns // LANES) * LANES * 4


def backward(
  shape: Shape,
  floats: Floats,
  integers: Integers,
  y_BTD: Array,
  lse_BN1T: Array,
  dy_BTD: Array,
) -> Floats:
  """Returns the operands' gradients from the results of `tpu.forward` and the output's."""
  heads = lambda x_BTD: x_BTD.reshape(*x_BTD.shape[:2], shape.heads, shape.size)
  padded = lambda x_BTD: layout.whole(layout.flat(shape, heads(x_BTD)), shape.block, 1)
  given = padded(dy_BTD), padded(y_BTD), lse_BN1T
  dq, dk, dv, dvectors_B8D, *tables = _call(shape, floats, integers, given)

  def table(like: Array | None) -> Array | None:
    if like is None:
      return None
    way_BE = jax.nn.one_hot(integers.row_4B[2], like.shape[0], dtype=jnp.float32)
    return jnp.einsum('BE,B...->E...', way_BE, tables.pop(0)).astype(like.dtype)

  return Floats(
    dq,
    dk.astype(floats.k_BSD.dtype),
    dv.astype(floats.v_BSD.dtype),
    dvectors_B8D.sum(0),
    table(floats.r_ERD),
    table(floats.p_ERD),
    table(floats.bias_EN1R),
  )


def _kernel(shape, count_ref, index_ref, row_4B, *refs):
  ins, (dy_ref, y_ref, lse_ref), outs = refs[:INPUTS], refs[INPUTS:][:3], refs[INPUTS + 3 :]
  dq_ref, dk_ref, dv_ref, dvectors_ref, dr_ref, dp_ref, dbias_ref, dq_scr, *beside = outs
  dk_sum, dv_sum = beside or (dk_ref.at[0], dv_ref.at[0])
  sums = dk_sum, dv_sum, dvectors_ref, dr_ref, dp_ref, dbias_ref
  where, visits = tile_lib.program(shape, count_ref, index_ref)
  i, j = pl.program_id(2), pl.program_id(3)

  @pl.when((i == 0) & (j == 0))
  def _():
    for ref in jax.tree.leaves(sums):
      ref[...] = jnp.zeros_like(ref)

  @pl.when(j == 0)
  def _():
    dq_scr[...] = jnp.zeros_like(dq_scr)

  @pl.when(visits)
  def _():
    for head in range(shape.group):
      tile = tile_lib.Tile(shape, ins, where, row_4B, head)
      lse_b1, dy_b = tile_lib.column(lse_ref[0, head]), dy_ref[0, :, tile.columns]
      product = dy_b.astype(jnp.float32) * y_ref[0, :, tile.columns].astype(jnp.float32)
      delta_b1 = jnp.sum(product, 1, keepdims=True)
      dq_scr[head] += _tile_grads(tile, head, dy_b, lse_b1, delta_b1, *sums)

  @pl.when(j == shape.blocks[1] - 1)
  def _():
    dq_ref[0] = jnp.concatenate([dq_scr[head] for head in range(shape.group)], 1).astype(
      dq_ref.dtype
    )

  if shape.narrow:

    @pl.when((i == shape.blocks[0] - 1) & (j == shape.blocks[1] - 1))
    def _():
      dk_ref[0] = dk_sum[...].astype(dk_ref.dtype)
      dv_ref[0] = dv_sum[...].astype(dv_ref.dtype)


def _tile_grads(
  tile, head, dy_b, lse_b1, delta_b1, dk_sum, dv_sum, dvectors_ref, dr_ref, dp_ref, dbias_ref
):
  """Adds the gradients of a tile to the sums, and returns that of the queries, float32 [b, H]."""
  shape, b = tile.shape, tile.shape.block
  narrow = tile.k_b.dtype
  here = (pl.ds(pl.multiple_of(tile.k_block * b, b), b), tile.columns)
  power_bb = jnp.where(tile.seen_bb, jnp.exp(tile.score_bb - lse_b1), 0.0)
  dpower_bb = dot(dy_b, tile.v_b, (1, 1))
  dropped_bb, kept_bb = power_bb, tile.kept()
  if kept_bb is not None:
    dropped_bb, dpower_bb = power_bb * kept_bb, dpower_bb * kept_bb
  dv_sum[here] += dot(dropped_bb.astype(dy_b.dtype), dy_b, (0, 0))
  dscore_bb = power_bb * (dpower_bb - delta_b1)
  scaled_bb = dscore_bb * shape.scale
  narrow_bb = scaled_bb.astype(narrow)
  dk_sum[here] += dot(narrow_bb, tile.biased(layout.U).astype(narrow), (0, 0))
  parts = {layout.U: dot(narrow_bb, tile.k_b, (1, 0))}

  def add(name: int, x_1H: Array) -> None:
    dvectors_ref[0, name : name + 1, tile.columns] += x_1H

  beside_bb = jnp.zeros_like(dscore_bb)
  turned = lambda x_bb: tile_lib.turn(jnp.concatenate([x_bb, beside_bb], 1), b, True, shape.strided)
  rows_of = lambda turned_round: pl.ds(
    pl.multiple_of(tile_lib.place_of(shape, tile.q_block, tile.k_block, turned_round) * b, b), 2 * b
  )
  if shape.by_keys:
    by_key = turned(jnp.transpose(scaled_bb)).astype(narrow)
    dk_sum[here] += dot(by_key, tile.p_2b, (1, 0))
    dp_ref[0, rows_of(True), tile.columns] += dot(by_key, tile.k_b, (0, 0))
  if shape.position or shape.bias:
    by_distance, rows = turned(dscore_bb), rows_of(False)
    if shape.bias:
      dbias_ref[0, head, :, rows] += jnp.sum(by_distance, 0, keepdims=True)
    if shape.position:
      by_distance = (by_distance * shape.scale).astype(narrow)
      parts[layout.W] = dot(by_distance, tile.r_2b, (1, 0))
      dr_ref[0, rows, tile.columns] += dot(
        by_distance, tile.biased(layout.W).astype(narrow), (0, 0)
      )
  if shape.segment:
    q_z = tile.biased(layout.Z)
    parts[layout.Z] = jnp.zeros_like(q_z)
    for name, chosen in ((layout.SAME, ~tile.other_bb), (layout.OTHER, tile.other_bb)):
      slope_b1 = jnp.sum(jnp.where(chosen, scaled_bb, 0.0), 1, keepdims=True)
      parts[layout.Z] += slope_b1 * tile.vectors[name : name + 1]
      add(name, jnp.sum(slope_b1 * q_z, 0, keepdims=True))
  for name, dq_b in parts.items():
    add(name, jnp.sum(dq_b, 0, keepdims=True))
  return functools.reduce(jnp.add, parts.values())


def _call(shape, floats, integers, given) -> list[Any]:
  scalars, arrays, specs = tile_lib.inputs(shape, floats, integers)
  b, group, lanes = shape.block, shape.group, shape.lanes
  per_query = pl.BlockSpec((1, b, lanes), lambda batch, n, i, j, *_: (batch, i, n))
  stat = pl.BlockSpec((1, group, 1, b), lambda batch, n, i, j, *_: (batch, n, 0, i))
  # One buffer: what is written stays for all tiles of a row and block of heads.
  held = functools.partial(pl.BlockSpec, pipeline_mode=pl.Buffered(1))

  def rows(count: int, dtype: Any = jnp.float32) -> tuple[Any, Any]:
    whole = jax.ShapeDtypeStruct((shape.rows, count, shape.groups * lanes), dtype)
    return whole, held((1, count, lanes), lambda batch, n, i, j, *_: (batch, 0, n))

  q, keys = floats.q_BTD, floats.k_BSD.shape[1]
  of_keys = rows(keys, floats.k_BSD.dtype if shape.narrow else jnp.float32)
  sums = [of_keys, of_keys, rows(8)]
  sums += [rows(shape.width) if has else ([], []) for has in (shape.position, shape.by_keys)]
  beside = sums[:2] if shape.narrow else []  # as many places again, of float32
  by_head = jax.ShapeDtypeStruct((shape.rows, shape.groups * group, 1, shape.width), jnp.float32)
  of_head = held((1, group, 1, shape.width), lambda batch, n, i, j, *_: (batch, n, 0, 0))
  sums.append((by_head, of_head) if shape.bias else ([], []))
  call = pl.pallas_call(
    functools.partial(_kernel, shape),
    out_shape=[jax.ShapeDtypeStruct(q.shape, q.dtype), *(out for out, _ in sums)],
    grid_spec=pltpu.PrefetchScalarGridSpec(
      num_scalar_prefetch=len(scalars),
      grid=(shape.rows, shape.groups, *shape.blocks),
      in_specs=[*specs, per_query, per_query, stat],
      out_specs=[per_query, *(spec for _, spec in sums)],
      scratch_shapes=[
        pltpu.VMEM((group, b, shape.wide), jnp.float32),
        *(pltpu.VMEM((keys, lanes), jnp.float32) for _ in beside),
      ],
    ),
    compiler_params=pltpu.CompilerParams(
      dimension_semantics=('parallel', 'parallel', 'arbitrary', 'arbitrary'),
      vmem_limit_bytes=_TILE_BYTES + sum(_vmem_bytes(spec) for _, spec in [*sums, *beside]),
    ),
    cost_estimate=tile_lib.cost(
      shape, scalars, arrays, [given, given[0]], [out for out, _ in sums],
      5 + 6 * (shape.position + shape.by_keys),
    ),
    interpret=shape.interpret,
    name='relative_attention_vjp',
  )  # fmt: skip
  grads = call(*scalars, *arrays, *given)
  return [x for x in grads if not isinstance(x, list)]
