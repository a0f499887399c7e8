"""The backward pass of the TPU kernel.

One kernel goes over the same tiles as the forward pass and recomputes their probabilities. The
gradient of a block of queries is summed up while it stays; those of keys, values and tables stay in
fast memory for all tiles of a row and head.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bertjax.kernels.relative_attention.tpu import layout
from bertjax.kernels.relative_attention.tpu import tile as tile_lib
from bertjax.kernels.relative_attention.tpu.layout import Floats, Integers, Shape
from bertjax.kernels.relative_attention.tpu.tile import INPUTS, dot

Array = jax.Array

_TILE_BYTES = 2**24  # of a tile's operands and scores


def _vmem_bytes(out: Any) -> int:
  """Bytes of a row and head of a result, as fast memory lays it out: in whole lanes."""
  if isinstance(out, list):
    return 0
  *_, length, size = out.shape
  return -(-length // 8) * 8 * -(-size // tile_lib.LANES) * tile_lib.LANES * 4


def backward(
  shape: Shape,
  floats: Floats,
  integers: Integers,
  y_BNTH: Array,
  lse_BN1T: Array,
  dy_BNTH: Array,
  strided: bool,
  interpret: bool,
) -> Floats:
  """The gradients of the operands, from the results of `tpu.forward` and the output's gradient."""
  product = dy_BNTH.astype(jnp.float32) * y_BNTH.astype(jnp.float32)
  delta_BN1T = jnp.sum(product, -1)[:, :, None]
  grads = _call(shape, floats, integers, dy_BNTH, lse_BN1T, delta_BN1T, strided, interpret)
  dq, dk, dv, dvectors_BN8H, *tables = grads

  def table(like: Array | None) -> Array | None:
    if like is None:
      return None
    way_BE = jax.nn.one_hot(integers.row_4B[2], like.shape[0], dtype=jnp.float32)
    return jnp.einsum('BE,B...->E...', way_BE, tables.pop(0)).astype(like.dtype)

  return Floats(
    dq,
    dk.astype(floats.k_BNSH.dtype),
    dv.astype(floats.v_BNSH.dtype),
    dvectors_BN8H.sum(0),
    table(floats.r_ENRH),
    table(floats.bias_EN1R),
  )


def _kernel(shape, strided, count_ref, index_ref, row_4B, *refs):
  ins, (dy_ref, lse_ref, delta_ref), outs = refs[:INPUTS], refs[INPUTS:][:3], refs[INPUTS + 3 :]
  *outs, dq_scr = outs
  dq_ref, sums = outs[0], outs[1:]
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
    tile = tile_lib.Tile(shape, ins, where, row_4B, strided)
    stats = tile_lib.column(lse_ref[0, 0]), tile_lib.column(delta_ref[0, 0])
    dq_scr[...] += _tile_grads(tile, dy_ref[0, 0], *stats, *sums)

  @pl.when(j == shape.blocks[1] - 1)
  def _():
    dq_ref[0, 0] = dq_scr[...].astype(dq_ref.dtype)


def _tile_grads(tile, dy_b, lse_b1, delta_b1, dk_ref, dv_ref, dvectors_ref, dr_ref, dbias_ref):
  """Adds the gradients of a tile to the sums, and returns that of the queries, float32 [b, H]."""
  shape, b = tile.shape, tile.shape.block
  narrow = tile.k_b.dtype
  here = pl.ds(pl.multiple_of(tile.k_block * b, b), b)
  power_bb = jnp.where(tile.seen_bb, jnp.exp(tile.score_bb - lse_b1), 0.0)
  dpower_bb = dot(dy_b, tile.v_b, (1, 1))
  dropped_bb, kept_bb = power_bb, tile.kept()
  if kept_bb is not None:
    dropped_bb, dpower_bb = power_bb * kept_bb, dpower_bb * kept_bb
  dv_ref[0, 0, here, :] += dot(dropped_bb.astype(dy_b.dtype), dy_b, (0, 0))
  dscore_bb = power_bb * (dpower_bb - delta_b1)
  scaled_bb = dscore_bb * shape.scale
  narrow_bb = scaled_bb.astype(narrow)
  dk_ref[0, 0, here, :] += dot(narrow_bb, tile.biased(layout.U).astype(narrow), (0, 0))
  parts = {layout.U: dot(narrow_bb, tile.k_b, (1, 0))}
  add = lambda name, x_1H: _add_row(dvectors_ref, name, x_1H)
  if shape.position or shape.bias:
    beside_bb = jnp.zeros_like(dscore_bb)
    by_distance = tile_lib.turn(jnp.concatenate([dscore_bb, beside_bb], 1), b, True, tile.strided)
    place = tile.k_block - tile.q_block + shape.blocks[0] - 1
    rows = pl.ds(pl.multiple_of(place * b, b), 2 * b)
    if shape.bias:
      dbias_ref[0, 0, :, rows] += jnp.sum(by_distance, 0, keepdims=True)
    if shape.position:
      by_distance = (by_distance * shape.scale).astype(narrow)
      parts[layout.W] = dot(by_distance, tile.r_2b, (1, 0))
      dr_ref[0, 0, rows, :] += dot(by_distance, tile.biased(layout.W).astype(narrow), (0, 0))
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


def _add_row(ref, name: int, x_1H: Array) -> None:
  ref[0, 0, name : name + 1, :] += x_1H


def _call(shape, floats, integers, dy, lse, delta, strided, interpret) -> list[Any]:
  scalars, arrays, specs = tile_lib.inputs(shape, floats, integers)
  b, size, heads = shape.block, floats.q_BNTH.shape[-1], (shape.rows, shape.heads)
  per_query = pl.BlockSpec((1, 1, b, size), lambda batch, n, i, j, *_: (batch, n, i, 0))
  stat = pl.BlockSpec((1, 1, 1, b), lambda batch, n, i, j, *_: (batch, n, 0, i))
  keys = floats.k_BNSH.shape[2]

  def whole(*tail: int) -> tuple[Any, Any]:
    return (
      jax.ShapeDtypeStruct((*heads, *tail), jnp.float32),
      # One buffer: what is written stays for all tiles of a row and head.
      pl.BlockSpec(
        (1, 1, *tail),
        lambda batch, n, i, j, *_: (batch, n, 0, 0),
        pipeline_mode=pl.Buffered(1),
      ),
    )

  sums = [whole(keys, size), whole(keys, size), whole(8, size)]
  sums.append(whole(shape.width, size) if shape.position else ([], []))
  sums.append(whole(1, shape.width) if shape.bias else ([], []))
  call = pl.pallas_call(
    functools.partial(_kernel, shape, strided),
    out_shape=[jax.ShapeDtypeStruct(dy.shape, dy.dtype), *(out for out, _ in sums)],
    grid_spec=pltpu.PrefetchScalarGridSpec(
      num_scalar_prefetch=len(scalars),
      grid=(*heads, *shape.blocks),
      in_specs=[*specs, per_query, stat, stat],
      out_specs=[per_query, *(spec for _, spec in sums)],
      scratch_shapes=[pltpu.VMEM((b, size), jnp.float32)],
    ),
    compiler_params=pltpu.CompilerParams(
      dimension_semantics=('parallel', 'parallel', 'arbitrary', 'arbitrary'),
      vmem_limit_bytes=_TILE_BYTES + sum(_vmem_bytes(out) for out, _ in sums),
    ),
    cost_estimate=tile_lib.cost(
      shape,
      scalars,
      arrays,
      [dy, dy, lse, delta],
      [out for out, _ in sums],
      11 if shape.position else 5,
    ),  # fmt: skip
    interpret=interpret,
    name='relative_attention_vjp',
  )
  grads = call(*scalars, *arrays, dy, lse, delta)
  return [x for x in grads if not isinstance(x, list)]
