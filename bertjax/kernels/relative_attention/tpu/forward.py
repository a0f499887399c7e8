"""The attention as a Pallas Mosaic kernel for TPUs, forward; backward.py is the other one.

A block of queries stays while the blocks of keys that it may see pass by; softmax is kept up in
float32 (Milakov and Gimelshein 2018, Dao et al. 2022). Tiles are in tile.py. A step of the grid
takes the heads of a block one after the other.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bertjax.kernels import target
from bertjax.kernels.relative_attention.operands import Operands, Relative
from bertjax.kernels.relative_attention.tpu import backward as tpu_backward
from bertjax.kernels.relative_attention.tpu import layout
from bertjax.kernels.relative_attention.tpu import tile as tile_lib
from bertjax.kernels.relative_attention.tpu.layout import Floats, Integers, Shape
from bertjax.kernels.relative_attention.tpu.tile import INPUTS, LANES, LEAST, Tile, dot
from bertjax.kernels.relative_attention.tuning import Call, choose
from bertjax.types import Array

_NO_STRIDED_ROTATION = ('TPU v4', 'TPU v3', 'TPU v2')
# Bytes that the sums may take of a core's fast memory: of 16 MB, less a tile; of 64 MB or more.
_SUM_BYTES = {kind: 10 * 2**20 for kind in _NO_STRIDED_ROTATION}
_MOST_SUM_BYTES = 40 * 2**20


def attend(x: Operands, *, kind: str | None = None, interpret: bool = False) -> Array:
  """See `relative_attention`; raises NotImplementedError with the reason and what takes the
  operands.

  Args:
    x: the operands.
    kind: the device kind to compile for; None: that of `target`, which is to be a TPU.
    interpret: runs without a TPU, slowly.
  """
  if kind is None and target.platform() != 'tpu':
    raise NotImplementedError(
      f"attention: impl='tpu' expected a TPU, got {target.platform()}; impl='xla' runs anywhere"
    )
  kind = kind or target.kind()
  tables = 0 if x.relative is None else x.relative.tables
  block = choose('tpu', kind, Call.of(x.q_BTNH, x.k_BSNH, tables))['both'].keys
  narrow = _check_takes(x, block, kind)
  shape, floats, integers = layout.pack(x, block)
  strided = kind not in _NO_STRIDED_ROTATION
  shape = shape._replace(narrow=narrow, strided=strided, interpret=interpret)
  y_BTD: Any = _core(shape, floats, integers)
  return y_BTD.reshape(*x.q_BTNH.shape)


def _check_takes(x: Operands, block: int, kind: str) -> bool:
  """Returns `Shape.narrow`: whether the sums and their copies fit, where those would be smaller."""
  size, keys, dtype = x.q_BTNH.shape[-1], x.k_BSNH.shape[1], x.q_BTNH.dtype
  if size > 256:
    raise NotImplementedError(
      f"attention: impl='tpu' takes heads of up to 256, got {size}; impl='xla' takes any"
    )
  if dtype not in (jnp.float32, jnp.bfloat16):
    raise NotImplementedError(
      f"attention: impl='tpu' takes float32 and bfloat16, got {dtype}; impl='xla' takes any"
    )
  wide, group = layout.columns(size)
  relative = x.relative or Relative()
  places = (keys + 2 * block) * wide * group
  needed = (2 + 2 * relative.tables) * places * 4
  limit = _SUM_BYTES.get(kind, _MOST_SUM_BYTES)
  if needed > limit:
    raise NotImplementedError(
      f"attention: impl='tpu' keeps gradients of {group} heads in fast memory; {keys} keys need "
      f'{needed / 2**20:.0f} MiB, and {limit / 2**20:.0f} MiB are for them on {kind}; '
      "impl='xla' takes any length"
    )
  return dtype != jnp.float32 and needed + 2 * places * dtype.itemsize <= limit


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _core(shape: Shape, floats: Floats, integers: Integers):
  return layout.unpack(shape, forward(shape, floats, integers)[0])


def _forward(shape, floats, integers):
  y_BTD, lse_BN1T = forward(shape, floats, integers)
  y_BTD, lse_BN1T = (
    checkpoint_name(x, 'attention') for x in (layout.unpack(shape, y_BTD), lse_BN1T)
  )
  return y_BTD, (floats, integers, y_BTD, lse_BN1T)


def _backward(shape, kept, dy_BTD):
  floats, integers, y_BTD, lse_BN1T = kept
  return tpu_backward.backward(shape, floats, integers, y_BTD, lse_BN1T, dy_BTD), None


_core.defvjp(_forward, _backward)


def _kernel(shape, count_ref, index_ref, row_4B, *refs):
  ins, (y_ref, lse_ref, most_scr, sum_scr, y_scr) = refs[:INPUTS], refs[INPUTS:]
  where, visits = tile_lib.program(shape, count_ref, index_ref)

  @pl.when(pl.program_id(3) == 0)
  def _():
    most_scr[...] = jnp.full_like(most_scr, LEAST)
    sum_scr[...] = jnp.zeros_like(sum_scr)
    y_scr[...] = jnp.zeros_like(y_scr)

  @pl.when(visits)
  def _():
    for head in range(shape.group):
      tile = Tile(shape, ins, where, row_4B, head)
      _add(tile, most_scr.at[head], sum_scr.at[head], y_scr.at[head])

  @pl.when(pl.program_id(3) == shape.blocks[1] - 1)
  def _():
    done = []
    for head in range(shape.group):
      total = sum_scr[head, :, :1]
      blind = total == 0.0
      done.append(y_scr[head] / jnp.where(blind, 1.0, total))
      lse = most_scr[head, :, :1] + jnp.log(jnp.where(blind, 1.0, total))
      lse_ref[0, head] = tile_lib.row(jnp.where(blind, 0.0, lse))
    y_ref[0] = jnp.concatenate(done, 1).astype(y_ref.dtype)


def _add(tile: Tile, most_scr, sum_scr, y_scr) -> None:
  """Adds a tile to what is known of its queries: the largest score, the sum, and the result."""
  before = most_scr[:, :1]
  score_bb = jnp.where(tile.seen_bb, tile.score_bb, LEAST)
  most = jnp.maximum(before, jnp.max(score_bb, 1, keepdims=True))
  power_bb = jnp.where(tile.seen_bb, jnp.exp(score_bb - most), 0.0)
  fade = jnp.exp(before - most)
  total = sum_scr[:, :1] * fade + jnp.sum(power_bb, 1, keepdims=True)
  kept_bb = tile.kept()
  if kept_bb is not None:
    power_bb *= kept_bb
  y_scr[...] = y_scr[...] * fade + dot(power_bb.astype(tile.v_b.dtype), tile.v_b, (1, 0))
  most_scr[...] = jnp.broadcast_to(most, most_scr.shape)
  sum_scr[...] = jnp.broadcast_to(total, sum_scr.shape)


def forward(shape: Shape, floats: Floats, integers: Integers) -> tuple[Array, Array]:
  """Returns the padded result [B, T, D], and the logarithm of the sum of exp(score) of each query
  as float32 [B, N, 1, T], 0 for one that sees nothing."""
  scalars, arrays, specs = tile_lib.inputs(shape, floats, integers)
  b, group, q_blocks = shape.block, shape.group, shape.blocks[0]
  out = (
    jax.ShapeDtypeStruct(floats.q_BTD.shape, floats.v_BSD.dtype),
    jax.ShapeDtypeStruct((shape.rows, shape.groups * group, 1, q_blocks * b), jnp.float32),
  )
  products = 2 + 2 * (shape.position + shape.by_keys)  # each table has 2b rows
  call = pl.pallas_call(
    functools.partial(_kernel, shape),
    out_shape=out,
    grid_spec=pltpu.PrefetchScalarGridSpec(
      num_scalar_prefetch=len(scalars),
      grid=(shape.rows, shape.groups, *shape.blocks),
      in_specs=specs,
      out_specs=(
        pl.BlockSpec((1, b, shape.lanes), lambda batch, n, i, j, *_: (batch, i, n)),
        pl.BlockSpec((1, group, 1, b), lambda batch, n, i, j, *_: (batch, n, 0, i)),
      ),
      scratch_shapes=[
        pltpu.VMEM((group, b, LANES), jnp.float32),
        pltpu.VMEM((group, b, LANES), jnp.float32),
        pltpu.VMEM((group, b, shape.wide), jnp.float32),
      ],
    ),
    compiler_params=pltpu.CompilerParams(
      dimension_semantics=('parallel', 'parallel', 'parallel', 'arbitrary')
    ),
    cost_estimate=tile_lib.cost(shape, scalars, arrays, list(out), [], products),
    interpret=shape.interpret,
    name='relative_attention',
  )
  return call(*scalars, *arrays)
