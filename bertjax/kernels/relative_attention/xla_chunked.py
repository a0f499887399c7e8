"""Attention in blocks of queries, recomputed in the backward pass: memory grows linearly in T.

A block is the reference's own code. Where one block holds all queries, as up to 256 queries by 256
keys, this is the reference to the bit.
"""

import dataclasses

import jax
import jax.numpy as jnp

from bertjax.kernels.relative_attention import reference
from bertjax.kernels.relative_attention.operands import Dropout, Mask, Relative

Array = jax.Array

# Scores of one row and head that are held at once. Small enough for a cache: at 512 queries by 896
# keys, 64 queries at a time take 0.73 of the CPU time of all at once, forward twice included.
SCORES = 2**16

# Scores of the whole operation that are kept for the backward pass rather than made again: 32 MB in
# float32. With the 5.5 M of XLNet base, one row of 512 by 896, a train step takes 0.85 of the time.
WHOLE = 2**23


def block_size(rows: int, queries: int, keys: int) -> int:
  """Queries per block.

  Args:
    rows: of the batch, times heads.
    queries, keys: of the operation.

  Returns:
    All queries where that makes at most WHOLE scores; else the largest power of two that makes at
    most SCORES for one row and head.
  """
  if rows * queries * keys <= WHOLE:
    return queries
  size = 2 ** max((SCORES // keys).bit_length() - 1, 3)
  return min(size, queries)


def attend(
  q_BTNH: Array,
  k_BSNH: Array,
  v_BSNH: Array,
  mask: Mask,
  relative: Relative | None = None,
  dropout: Dropout | None = None,
) -> Array:
  """See `relative_attention`."""
  queries = q_BTNH.shape[1]
  size = block_size(q_BTNH.shape[0] * q_BTNH.shape[2], queries, k_BSNH.shape[1])
  if size == queries:
    return reference.attend(q_BTNH, k_BSNH, v_BSNH, mask, relative, dropout)
  blocks = -(-queries // size)

  def split(x: Array) -> Array:
    pads = [(0, 0), (0, blocks * size - queries)] + [(0, 0)] * (x.ndim - 2)
    x = jnp.pad(x, pads)  # padding is example 0, which sees nothing
    return jnp.moveaxis(x.reshape(x.shape[0], blocks, size, *x.shape[2:]), 1, 0)

  names = [f.name for f in dataclasses.fields(mask) if f.name.endswith('_q_BT')]
  rows = {name: getattr(mask, name) for name in names if getattr(mask, name) is not None}
  if relative is not None and relative.segment is not None:
    rows['segment_q_BT'] = relative.segment.segment_q_BT
  rows = {name: split(x) for name, x in rows.items()}

  @jax.checkpoint
  def block(first: Array, q_BCNH: Array, rows: dict[str, Array], k_BSNH, v_BSNH, relative):
    rows = dict(rows)
    if relative is not None and relative.segment is not None:
      segment = dataclasses.replace(relative.segment, segment_q_BT=rows.pop('segment_q_BT'))
      relative = dataclasses.replace(relative, segment=segment)
    mine = dataclasses.replace(mask, **rows)
    return reference.attend_block(q_BCNH, k_BSNH, v_BSNH, mine, relative, dropout, first, queries)

  def step(_, inputs):
    return (), block(*inputs, k_BSNH, v_BSNH, relative)

  inputs = (jnp.arange(blocks) * size, split(q_BTNH), rows)
  y = jnp.moveaxis(jax.lax.scan(step, (), inputs)[1], 0, 1)
  return y.reshape(q_BTNH.shape[0], blocks * size, *q_BTNH.shape[2:])[:, :queries]
