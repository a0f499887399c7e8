"""Finds the fastest tiles of a kernel on the device at hand, and writes its kind's table."""

import concurrent.futures
import functools
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bertjax.errors import UserError
from bertjax.kernels.relative_attention import relative_attention, tuning
from bertjax.kernels.relative_attention.arg_specs import Shape
from bertjax.kernels.relative_attention.tuning import Call, Entry, Tile
from bertjax.machine import durable
from bertjax.tools.bench.parts import passes, timing
from bertjax.tools.bench.parts.kernel_time import REFERENCE, TOLERANCE

Tiles = Mapping[str, Tile]
Compiled = Callable[[], Any]  # forward and backward, once


class Bench(NamedTuple):
  """A way to try tiles: `build` runs in threads and raises what the compiler raises, `clock`
  returns the median seconds of a call, or raises if its results are wrong."""

  build: Callable[[Tiles], Compiled]
  clock: Callable[[Compiled], float]


SIDES = (16, 32, 64, 128)


def candidates(impl: str, kernel: str) -> list[Tile]:
  """Returns the tiles that are tried for a kernel."""
  if impl == 'tpu':
    return [Tile(side, side) for side in (128, 256, 512)]
  pairs = [(q, k) for q in SIDES for k in SIDES if max(q, k) >= 32]
  if kernel == 'diagonals':
    pairs = [(q, k) for q, k in pairs if q == k]
  return [Tile(q, k, warps, 2) for q, k in pairs for warps in (4, 8)]


class Found(NamedTuple):
  """The fastest tiles."""

  tiles: dict[str, Tile]  # of each kernel
  speedup: float  # the first tiles' time over theirs
  # why candidates were not taken: they do not compile, or their results differ
  left_out: dict[tuple[str, Tile], str]


def fastest(impl: str, start: Tiles, bench: Bench, kernels: Collection[str]) -> Found:
  """Tunes some of the kernels: changes the tile of one at a time, then its depth, and keeps the
  fastest of each. The kernels of a call run one after the other, so each is chosen by itself; what
  is to be timed is compiled beforehand, on all cores."""
  best, left_out = dict(start), {}
  before = bench.clock(bench.build(best))
  # Of a GPU then its depth: how many turns its loads are ahead of the products.
  stages = (1, 3, 4) if impl == 'gpu' else ()
  deeper = lambda _, tile: [tile._replace(stages=n) for n in stages]
  for options in (lambda kernel, _: candidates(impl, kernel), deeper):
    tried = [(k, tile) for k in kernels for tile in options(k, best[k]) if tile != best[k]]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
      builds = [threads.submit(bench.build, best | {kernel: tile}) for kernel, tile in tried]
    seconds = {kernel: [(bench.clock(bench.build(best)), tile)] for kernel, tile in best.items()}
    for (kernel, tile), build in zip(tried, builds, strict=True):
      try:
        seconds[kernel].append((bench.clock(build.result()), tile))
      except Exception as error:  # of many types, one for each way that a tile is too large
        left_out[kernel, tile] = f'{type(error).__name__}: {str(error)[:80]}'
    best = {kernel: min(timed)[1] for kernel, timed in seconds.items()}
  speedup = before / bench.clock(bench.build(best))
  return Found(best, speedup, left_out) if speedup > 1 else Found(dict(start), 1.0, left_out)


def bench(shape: Shape, impl: str, dtype: str, calls: int) -> Bench:
  """Times a shape's forward and backward, once its results equal the reference's."""
  arguments = jax.jit(lambda: passes.arguments(shape, jnp.dtype(dtype)))()
  want = jax.jit(passes.forward_backward(REFERENCE))(*arguments)

  def build(chosen: Tiles) -> Compiled:
    attention = functools.partial(relative_attention, impl=impl)
    with tuning.using((Entry(chosen),)):
      compiled = jax.jit(passes.forward_backward(attention)).lower(*arguments).compile()
    return lambda: compiled(*arguments)

  def clock(compiled: Compiled) -> float:
    error = passes.largest_error(compiled(), want)
    if not error < TOLERANCE[dtype]:
      raise UserError(f'differs from the reference by {error:.2g}')
    return timing.queued(dict(it=compiled), calls)['it']

  return Bench(build, clock)


def merged(impl: str, old: tuning.Table, new: list[Entry]) -> tuning.Table:
  """Returns the new entries and the old ones for other calls; the narrowest are tried first."""
  condition = lambda e: (e.dtype, e.tables, e.size, e.length)
  replaced = {condition(entry) for entry in new}
  timed = [e for e in old if None not in condition(e) and condition(e) not in replaced]
  rest = [e for e in old if None in condition(e)]
  order = lambda e: (e.dtype or '', e.tables or 0, e.size or 0, e.length or 0)
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
  after each. Raises UserError: the folder of the tables cannot be written to."""
  kind = jax.devices()[0].device_kind
  path, entries = tuning.path(kind), []
  if not os.access(path.parent, os.W_OK):  # before hours of timing, not after
    raise UserError(
      f'tune: expected a writable folder {path.parent}, got one that is not; '
      'run it from a checkout of the repository'
    )
  for name, shape in shapes.items():
    length = max(shape.queries, shape.keys)
    tables = 1 + shape.by_keys if shape.table and not shape.bias else 0
    call = Call(dtype, tables, shape.size, length)
    if any((e.dtype, e.tables, e.size, e.length) == call for e in entries):
      continue
    start = tuning.choose(impl, kind, call)
    # Diagonals are summed for the gradient of a bias table alone.
    kernels = [kernel for kernel in start if kernel != 'diagonals' or shape.bias]
    found = fastest(impl, start, bench(shape, impl, dtype, calls), kernels)
    entries.append(Entry(found.tiles, *call))
    durable.write_json(path, tuning.dump(merged(impl, tuning.load(impl, kind), entries), made))
    row = dict(shape=name, impl=impl, dtype=dtype, speedup=round(found.speedup, 3))
    row |= {kernel: tuple(tile) for kernel, tile in found.tiles.items()}
    yield row | dict(left_out=len(found.left_out))
  yield dict(written=str(path))
