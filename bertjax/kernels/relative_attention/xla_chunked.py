"""Attention in blocks of queries, recomputed in the backward pass: memory grows linearly in T.

A block is the reference's own code. Where one block holds all queries, as up to 255 queries of few
rows, this is the reference to the bit. Queries come in runs, so that keys which a causal mask or a
window hides from all of a run take no time.
"""

import itertools
from typing import Any

import jax
import jax.numpy as jnp

from bertjax.kernels.relative_attention import reference
from bertjax.kernels.relative_attention.operands import Mask, Operands
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
  """Returns runs of queries, and of the keys that one of each run may see: what is beyond is not
  computed, under a causal mask or a window without global tokens; `near` is `Operands.nearest`."""
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


def attend(x: Operands) -> Array:
  """See `relative_attention`."""
  (rows, queries, heads, _), keys = x.q_BTNH.shape, x.k_BSNH.shape[1]
  runs = spans(x.mask, x.nearest, queries, keys)
  scores = rows * heads * sum(_length(mine) * _length(theirs) for mine, theirs in runs)
  parts = []
  for mine, theirs in runs:
    size = _length(mine) if scores <= WHOLE else block_size(_length(mine), _length(theirs))
    place = Place(mine.start, theirs.start, queries, keys)
    parts.append(_attend_blocks(_run(x, mine, theirs), place, size, x.nearest))
  return parts[0] if len(parts) == 1 else jnp.concatenate(parts, 1)


def _length(run: slice) -> int:
  return run.stop - run.start


def _run(x: Operands, mine: slice, theirs: slice) -> Operands:
  """Cuts the operands to a run of queries and its keys."""
  ends = dict(BT=mine, BTNH=mine, BS=theirs, BSNH=theirs)
  cut = lambda path, leaf: leaf[:, ends[_axes(path)]] if _axes(path) in ends else leaf
  return jax.tree_util.tree_map_with_path(cut, x)


def _axes(path: Any) -> str:
  return path[-1].name.rpartition('_')[2]


def _attend_blocks(x: Operands, place: Place, size: int, near: int | None) -> Array:
  """Returns a run of queries, `size` of them at a time."""
  rows, queries, *last = x.q_BTNH.shape
  if size == queries:
    return reference.attend_block(x, place, near)
  blocks = -(-queries // size)

  def split(x: Array) -> Array:
    pads = [(0, 0), (0, blocks * size - queries)] + [(0, 0)] * (x.ndim - 2)
    x = jnp.pad(x, pads)  # padding is example 0, which sees nothing
    return jnp.moveaxis(x.reshape(x.shape[0], blocks, size, *x.shape[2:]), 1, 0)

  named, tree = jax.tree_util.tree_flatten_with_path(x)
  of_queries = [_axes(path) in ('BT', 'BTNH') for path, _ in named]
  mine, theirs = (
    [leaf for (_, leaf), q in zip(named, of_queries, strict=True) if q == want]
    for want in (True, False)
  )

  @jax.checkpoint
  def block(first: Array, mine: list[Array], theirs: list[Array]) -> Array:
    parts = iter(theirs), iter(mine)
    x = tree.unflatten([next(parts[q]) for q in of_queries])
    return reference.attend_block(x, place._replace(first=first), near)

  inputs = (place.first + jnp.arange(blocks) * size, [split(leaf) for leaf in mine])
  y = jax.lax.scan(lambda _, inputs: ((), block(*inputs, theirs)), (), inputs)[1]
  return jnp.moveaxis(y, 0, 1).reshape(rows, blocks * size, *last)[:, :queries]
