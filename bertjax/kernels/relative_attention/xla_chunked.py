"""Attention in blocks of queries, recomputed in the backward pass: memory grows linearly in T.

A block is the reference's own code. Where one block holds all queries, as up to 255 queries of few
rows, this is the reference to the bit. Queries come in runs, so that keys which a causal mask or a
window hides from all of a run take no time; in long rows under a narrow window each block has keys
of its own, so that time and memory grow linearly with the row.
"""

import itertools
from typing import Any

import jax
import jax.numpy as jnp

from bertjax.kernels.relative_attention import reference
from bertjax.kernels.relative_attention.operands import Mask, Operands, axes_of
from bertjax.kernels.relative_attention.reference import Place
from bertjax.types import Array

# Scores of one row and head that are held at once where not all are kept.
SCORES = 2**16

# Scores of the whole operation that are kept for the backward pass rather than made again: 64 MiB
# in float32. With DeBERTa base's four rows of 512 both passes take half of the time (LOG.md).
WHOLE = 2**24

# Runs of queries whose keys are cut off where a mask lets them see no further: at most so many, of
# at least so many queries. With eight a causal operation computes nine sixteenths of its scores.
SPANS, SPAN = 8, 128


def block_size(queries: int, keys: int) -> int:
  """Queries of a block: the largest power of two that makes at most SCORES for a row and head."""
  return min(2 ** max((SCORES // keys).bit_length() - 1, 3), queries)


def spans(mask: Mask, near: int | None, queries: int, keys: int) -> list[tuple[slice, slice]]:
  """Returns runs of queries, and of the keys that one of each run may see: what is beyond is not
  computed, under a causal mask or a window without sinks; `near` is `Operands.nearest`."""
  window = None if mask.sinks else mask.window
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
  if slides(x):
    return _slide(x)
  (rows, queries, heads, _), keys = x.q_BTNH.shape, x.k_BSNH.shape[1]
  runs = spans(x.mask, x.nearest, queries, keys)
  scores = rows * heads * sum(_length(mine) * _length(theirs) for mine, theirs in runs)
  parts = []
  for mine, theirs in runs:
    size = _length(mine) if scores <= WHOLE else block_size(_length(mine), _length(theirs))
    run, place = _run(x, mine, theirs), Place(mine.start, theirs.start, queries, keys)
    if size == _length(mine):
      parts.append(reference.attend_block(run, place, x.nearest))
    else:
      parts.append(_scan(run, place, size, x.nearest, lambda path, x_BS: (None, x_BS)))
  return parts[0] if len(parts) == 1 else jnp.concatenate(parts, 1)


def _length(run: slice) -> int:
  return run.stop - run.start


def _run(x: Operands, mine: slice, theirs: slice) -> Operands:
  """Cuts the operands to a run of queries and its keys."""
  ends = dict(BT=mine, BTNH=mine, BS=theirs, BSNH=theirs)
  cut = lambda path, leaf: leaf[:, ends[axes_of(path)]] if axes_of(path) in ends else leaf
  return jax.tree_util.tree_map_with_path(cut, x)


def slides(x: Operands) -> bool:
  """Returns whether a window is so narrow that a run of queries, of which there are none beside
  sinks, would be longer."""
  window, queries, sinks = x.mask.window, x.q_BTNH.shape[1], x.mask.sinks
  by_column = sinks and x.relative is not None and x.relative.rows
  most = 3 if sinks else SPANS
  return window is not None and max(window, SPAN) * most < queries and not by_column


def _slide(x: Operands) -> Array:
  """Returns all queries in blocks of half a window, each with sinks and the keys around it."""
  queries, keys, sinks = x.q_BTNH.shape[1], x.k_BSNH.shape[1], x.mask.sinks
  reach, near = (x.mask.window or 1) - 1, x.nearest
  size = max(-(-reach // 2), SPAN // 4)
  past = -(-reach // size)
  ahead = past if near is None else -(min(reach, -near) // -size)
  blocks, begin = -(-queries // size), keys - queries - past * size

  def around(path: Any, x_BS: Array) -> tuple[Array, Array | None]:
    shared = x_BS[:, :sinks] if sinks else None
    if path[-1].name == 'example_k_BS':  # the window has no sinks
      x_BS = jnp.where(jnp.arange(keys) < sinks, 0, x_BS)
    lacking = (blocks + past + ahead) * size - (keys - begin)
    pads = [(0, 0), (max(-begin, 0), lacking)] + [(0, 0)] * (x_BS.ndim - 2)
    padded = jnp.pad(x_BS[:, max(begin, 0) :], pads)  # padding is example 0, which nothing sees
    parts = padded.reshape(len(padded), -1, size, *padded.shape[2:])
    near = jnp.concatenate([parts[:, i : i + blocks] for i in range(past + 1 + ahead)], 2)
    return jnp.moveaxis(near, 1, 0), shared

  return _scan(x, Place(0, begin - sinks, queries, keys), size, near, around, moves=True)


def _scan(
  x: Operands, place: Place, size: int, near: int | None, keys_of: Any, moves: bool = False
) -> Array:
  """Returns blocks of queries one after the other. `keys_of` gives those of each block, or None,
  and those that all blocks share, or None; `moves`: the former begin as far on as the queries."""
  rows, queries, *last = x.q_BTNH.shape
  blocks = -(-queries // size)

  def split(x: Array) -> Array:
    pads = [(0, 0), (0, blocks * size - queries)] + [(0, 0)] * (x.ndim - 2)
    x = jnp.pad(x, pads)  # padding is example 0, which sees nothing
    return jnp.moveaxis(x.reshape(x.shape[0], blocks, size, *x.shape[2:]), 1, 0)

  named, tree = jax.tree_util.tree_flatten_with_path(x)
  own, shared = [], []
  for path, leaf in named:
    axes, mine, theirs = axes_of(path), None, leaf
    if axes in ('BT', 'BTNH'):
      mine, theirs = split(leaf), None
    elif axes in ('BS', 'BSNH'):
      mine, theirs = keys_of(path, leaf)
    own.append(mine)
    shared.append(theirs)

  @jax.checkpoint
  def block(begin: Array, own: list[Any], shared: list[Any]) -> Array:
    both = [[x for x in pair if x is not None] for pair in zip(shared, own, strict=True)]
    x = tree.unflatten(
      [parts[0] if len(parts) == 1 else jnp.concatenate(parts, 1) for parts in both]
    )
    here = place._replace(first=place.first + begin, low=place.low + begin * moves)
    return reference.attend_block(x, here, near)

  inputs = jnp.arange(blocks) * size, own
  y = jax.lax.scan(lambda _, inputs: ((), block(*inputs, shared)), (), inputs)[1]
  return jnp.moveaxis(y, 0, 1).reshape(rows, blocks * size, *last)[:, :queries]
