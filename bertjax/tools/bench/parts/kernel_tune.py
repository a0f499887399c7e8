"""Finds the fastest tiles of a kernel on the device at hand, and writes its kind's table."""

import functools
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bertjax.errors import UserError
from bertjax.kernels.relative_attention import relative_attention, tuning
from bertjax.kernels.relative_attention.arg_specs import Shape
from bertjax.kernels.relative_attention.tuning import Call, Entry, Tile
from bertjax.machine import durable
from bertjax.tools.bench.parts import passes, timing
from bertjax.tools.bench.parts.kernel_time import REFERENCE, TOLERANCE, WARMUP

Tiles = Mapping[str, Tile]
# Median seconds of forward and backward with these tiles; raises what the compiler raises.
Clock = Callable[[Tiles], float]

SIDES = (16, 32, 64, 128)


def candidates(impl: str, kernel: str) -> list[Tile]:
  """Returns the tiles that are tried for a kernel."""
  if impl == 'tpu':
    return [Tile(side, side) for side in (128, 256, 512)]
  pairs = [(q, k) for q in SIDES for k in SIDES if max(q, k) >= 32]
  if kernel == 'diagonals':
    pairs = [(q, k) for q, k in pairs if q == k]
  return [Tile(q, k, warps, 2) for q, k in pairs for warps in (4, 8)]


def depths(impl: str, tile: Tile) -> list[Tile]:
  """Returns the same tile, with its loads more or fewer turns ahead of the products."""
  return [tile._replace(stages=n) for n in (1, 3, 4)] if impl == 'gpu' else []


class Found(NamedTuple):
  """The fastest tiles."""

  tiles: dict[str, Tile]  # of each kernel
  speedup: float  # the first tiles' time over theirs
  # why candidates were not taken: they do not compile, or their results differ
  left_out: dict[Tile, str]


def fastest(impl: str, start: Tiles, clock: Clock) -> Found:
  """Changes the tile of one kernel after the other, then its depth, and keeps the fastest."""
  best, left_out = dict(start), {}
  before = least = clock(best)
  for kernel, tile in _tried(impl, best):
    if tile == best[kernel]:
      continue
    try:
      seconds = clock(best | {kernel: tile})
    except Exception as error:  # of many types, one for each way that a tile is too large
      left_out[tile] = f'{type(error).__name__}: {str(error)[:80]}'
      continue
    if seconds < least:
      best[kernel], least = tile, seconds
  return Found(best, before / least, left_out)


def _tried(impl: str, best: Tiles) -> Iterator[tuple[str, Tile]]:
  """Yields what `fastest` tries: every tile of a kernel, then the best tile at other depths."""
  for kernel in best:
    yield from ((kernel, tile) for tile in candidates(impl, kernel))
    yield from ((kernel, tile) for tile in depths(impl, best[kernel]))


def clock(shape: Shape, impl: str, dtype: str, calls: int) -> Clock:
  """Times a shape's forward and backward, once its results equal the reference's."""
  arguments = jax.jit(lambda: passes.arguments(shape, jnp.dtype(dtype)))()
  want = jax.jit(passes.forward_backward(REFERENCE))(*arguments)

  def median(chosen: Tiles) -> float:
    attention = functools.partial(relative_attention, impl=impl)
    function = jax.jit(passes.forward_backward(attention))
    with tuning.using((Entry(chosen),)):
      error = passes.largest_error(function(*arguments), want)
      if not error < TOLERANCE[dtype]:
        raise UserError(f'differs from the reference by {error:.2g}')
      arms = dict(it=lambda: jax.block_until_ready(function(*arguments)))
      return float(np.median(timing.alternate(arms, calls, WARMUP)['it']))

  return median


def merged(impl: str, old: tuning.Table, new: list[Entry]) -> tuning.Table:
  """Returns the new entries and the old ones for other calls; the narrowest are tried first."""
  condition = lambda e: (e.dtype, e.position, e.size, e.length)
  replaced = {condition(entry) for entry in new}
  timed = [e for e in old if None not in condition(e) and condition(e) not in replaced]
  rest = [e for e in old if None in condition(e)]
  order = lambda e: (e.dtype or '', bool(e.position), e.size or 0, e.length or 0)
  table = (*sorted([*new, *timed], key=order), *rest)
  for entry in table:
    for kernel, tile in entry.kernels.items():
      tuning.check(impl, kernel, tile)
  return table


def rows(
  shapes: Mapping[str, Shape], impl: str, dtype: str, calls: int, made: str
) -> Iterator[dict[str, Any]]:
  """Tunes named shapes, a row for each and the first for each entry of the table, by so many timed
  calls of each candidate; writes the table of the device's kind, with `made` about its making,
  after each."""
  kind = jax.devices()[0].device_kind
  path, entries = tuning.path(kind), []
  writable(path)
  for name, shape in shapes.items():
    length = max(shape.queries, shape.keys)
    call = Call(dtype, bool(shape.table and not shape.bias), shape.size, length)
    if any((e.dtype, e.position, e.size, e.length) == call for e in entries):
      continue
    start = tuning.choose(impl, kind, call)
    found = fastest(impl, start, clock(shape, impl, dtype, calls))
    entries.append(Entry(found.tiles, *call))
    durable.write_json(path, tuning.dump(merged(impl, tuning.load(impl, kind), entries), made))
    row = dict(shape=name, impl=impl, dtype=dtype, speedup=round(found.speedup, 3))
    row |= {kernel: tuple(tile) for kernel, tile in found.tiles.items()}
    yield row | dict(left_out=len(found.left_out))
  yield dict(written=str(path))


def writable(path: pathlib.Path) -> None:
  """Refuses before hours of timing, not after. Raises UserError if the folder of the tables cannot
  be written to."""
  if not os.access(path.parent, os.W_OK):
    raise UserError(
      f'tune: expected a writable folder {path.parent}, got one that is not; '
      'run it from a checkout of the repository'
    )
