"""Attention in blocks of queries, recomputed in the backward pass: memory grows linearly in T.

A block is the reference's own code. Where one block holds all queries, as up to 255 queries of few
rows, this is the reference to the bit. Queries come in runs, so that keys which a causal mask or a
window hides from all of a run take no time.
"""

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp

from bertjax.kernels.relative_attention import reference
from bertjax.kernels.relative_attention.operands import Dropout, Mask, Relative, nearest
from bertjax.kernels.relative_attention.reference import Place

Array = jax.Array

# Scores of one row and head that are held at once. Small enough for a cache: at 512 queries by 896
# keys, 64 queries at a time take 0.73 of the CPU time of all at once, forward twice included.
SCORES = 2**16

# Scores of the whole operation that are kept for the backward pass rather than made again: 32 MB in
# float32. With the 5.5 M of XLNet base, one row of 512 by 896, a train step takes 0.85 of the time.
WHOLE = 2**23

# Runs of queries whose keys are cut off where a mask lets them see no further: at most so many, of
# at least so many queries. With eight a causal operation computes nine sixteenths of its scores.
SPANS, SPAN = 8, 128


def block_size(queries: int, keys: int) -> int:
  """Queries of a block: the largest power of two that makes at most SCORES for a row and head."""
  return min(2 ** max((SCORES // keys).bit_length() - 1, 3), queries)


def spans(mask: Mask, near: int | None, queries: int, keys: int) -> list[tuple[slice, slice]]:
  """Runs of queries, and of the keys that one of each run may see: what is beyond is not computed.

  Args:
    mask: of the operation; a causal one or a window without global tokens leaves keys out.
    near: see `operands.nearest`.
    queries, keys: of the operation.
  """
  window = mask.window if mask.global_q_BT is None else None
  hides = near is not None or window is not None
  count = min(max(queries // SPAN, 1), SPANS) if hides else 1
  ends = [queries * i // count for i in range(count + 1)]
  found = []
  for begin, end in itertools.pairwise(ends):
    first, last = keys - queries + begin, keys - queries + end - 1  # columns
    low = 0 if window is None else max(first - window + 1, 0)
    high = keys if window is None else min(last + window, keys)
    high = high if near is None else min(high, last - near + 1)
    found.append((slice(begin, end), slice(low, high)))
  return found


def attend(
  q_BTNH: Array,
  k_BSNH: Array,
  v_BSNH: Array,
  mask: Mask,
  relative: Relative | None = None,
  dropout: Dropout | None = None,
) -> Array:
  """See `relative_attention`."""
  rows, queries, heads, _ = q_BTNH.shape
  keys = k_BSNH.shape[1]
  runs = spans(mask, nearest(mask, relative, queries), queries, keys)
  scores = rows * heads * sum(_length(mine) * _length(theirs) for mine, theirs in runs)
  parts = []
  for mine, theirs in runs:
    size = _length(mine) if scores <= WHOLE else block_size(_length(mine), _length(theirs))
    operands = (q_BTNH[:, mine], k_BSNH[:, theirs], v_BSNH[:, theirs])
    masks = _part(mask, mine, theirs), _relative_part(relative, mine, theirs)
    place = Place(mine.start, theirs.start, queries, keys)
    parts.append(_attend_blocks(*operands, *masks, dropout, place, size))
  return parts[0] if len(parts) == 1 else jnp.concatenate(parts, 1)


def _length(run: slice) -> int:
  return run.stop - run.start


def _part(vectors: Any, mine: slice, theirs: slice) -> Any:
  """A dataclass with the parts of its vectors over queries, and over keys."""
  cut = {}
  for name in (field.name for field in dataclasses.fields(vectors)):
    value = getattr(vectors, name)
    if name.endswith(('_q_BT', '_k_BS')) and value is not None:
      cut[name] = value[:, mine if name.endswith('_q_BT') else theirs]
  return dataclasses.replace(vectors, **cut)


def _relative_part(relative: Relative | None, mine: slice, theirs: slice) -> Relative | None:
  if relative is None or relative.segment is None:
    return relative
  return dataclasses.replace(relative, segment=_part(relative.segment, mine, theirs))


def _attend_blocks(
  q_BTNH: Array, k_BSNH: Array, v_BSNH: Array, mask: Mask, relative: Relative | None,
  dropout: Dropout | None, place: Place, size: int,
) -> Array:  # fmt: skip
  """A run of queries, `size` of them at a time."""
  queries = q_BTNH.shape[1]
  if size == queries:
    return reference.attend_block(q_BTNH, k_BSNH, v_BSNH, mask, relative, dropout, place)
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
    there = place._replace(first=first)
    return reference.attend_block(q_BCNH, k_BSNH, v_BSNH, mine, relative, dropout, there)

  def step(_, inputs):
    return (), block(*inputs, k_BSNH, v_BSNH, relative)

  inputs = (place.first + jnp.arange(blocks) * size, split(q_BTNH), rows)
  y = jnp.moveaxis(jax.lax.scan(step, (), inputs)[1], 0, 1)
  return y.reshape(q_BTNH.shape[0], blocks * size, *q_BTNH.shape[2:])[:, :queries]
