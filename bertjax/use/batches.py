"""Rows of any length through a model, in few shapes: sorted by length, in buckets, in order again.

A batch has about TOKENS columns, so that short rows come in many and long ones in few; its
length is that of its longest row, rounded up to a bucket. Each (length, rows, slots) is compiled
once, at its first use, so batches keep the shape of the one before where its padding takes less
time than compiling.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from bertjax import sharding
from bertjax.errors import UserError
from bertjax.examples.spelling import Speller
from bertjax.models.layers.contracts import WritingModel
from bertjax.text.sentences import Frame, Row, as_batch
from bertjax.types import Variables

TOKENS = dict(cpu=1024)  # columns of a batch; times the devices that share its rows
MANY_TOKENS = 32768  # on a device that wants more to do
COMPILE = 4  # batches that are computed while one shape is compiled (LOG.md, 2026-11-27)
STEPS = 4  # lengths between a power of two and the next
SHORTEST = 8
FEWER = 4  # a last batch may have a fourth of the rows, or a sixteenth, ..
NAN = 'the model answers NaN, its numbers overflow: take another checkpoint or model'


class Cut(NamedTuple):
  """A batch to be made.

  Attributes:
    count, length: B and T.
  """

  index_n: np.ndarray  # which rows it has
  count: int
  length: int


def bucket(length: int, room: int | None = None) -> int:
  """Returns the length of a batch whose longest row it is: 8, 10, 12, 14, 16, 20, .., at most
  `room`."""
  step = max(1 << (max(length - 1, 1).bit_length() - 1), SHORTEST) // STEPS
  rounded = max(-(-length // step) * step, SHORTEST)
  return rounded if room is None else max(min(rounded, room), length)


def cuts(
  length_n: np.ndarray, ways: int, room: int | None, tokens: int, spare: int = 0
) -> Iterator[Cut]:
  """Yields batches of all rows, the longest first: B is a multiple of `ways`, T at most `room`, and
  B times T about `tokens` for each of the ways. A shape is kept while that costs no more than
  `spare` columns for the rows that are left."""
  order_n, start, length, count = np.argsort(-length_n, kind='stable'), 0, 0, 1
  while start < len(order_n):
    left, own = len(order_n) - start, bucket(int(length_n[order_n[start]]), room)
    kept = -(-left // (count * ways)) * count * ways * length - left * own
    if not length or kept > spare:
      length, count = own, 1 << max(tokens // own, 1).bit_length() - 1
      while count // FEWER * ways >= left and count >= FEWER:
        count //= FEWER
    yield Cut(order_n[start : start + count * ways], count * ways, length)
    start += count * ways


class Runner:
  """Functions of a model, compiled for its mesh, `devices`."""

  def __init__(
    self,
    variables: Variables,
    devices: sharding.Devices,
    frame: Frame,
    room: int | None,
    tables: Mapping[str, int],
    speller: Speller | None = None,
  ):
    """Takes variables on the mesh; `room` is the longest row that the model takes, `tables` have
    the id of all tokens, for `<name>_BT`; the speller is of a model that reads characters."""
    self._speller = speller
    self.devices = devices
    self._variables, self._frame = variables, frame
    self._room, self._tables = room, tables
    self._tokens = TOKENS.get(devices.mesh.devices.flat[0].platform, MANY_TOKENS)
    self._compiled: dict[tuple, Any] = {}
    self._spare = COMPILE * self._tokens * devices.ways

  def for_writing(self, model: WritingModel) -> 'Runner':
    """Returns a runner of the variables with which a model writes."""
    own = self.devices, self._frame, self._room, self._tables, self._speller
    return Runner(model.for_writing(self._variables), *own)

  def expect(self, done: float | None) -> None:
    """Takes how much of the texts, 0 to 1, the next `run` has: of many each shape is worth it."""
    if done is not None and done < 1 / COMPILE:
      self._spare = 0

  def run(self, key: Any, function: Callable[..., Any], rows: Sequence[Row]) -> list[Any]:
    """Runs a function of (variables, batch), whose key no other function has, on rows of any
    lengths in batches; returns its result for each, a tree of NumPy arrays, in their order."""
    length_n = np.array([len(row.id_n) for row in rows], np.int64)
    results: list[Any] = [None] * len(rows)
    flying: list[tuple[Cut, Any]] = []
    for cut in cuts(length_n, self.devices.ways, self._room, self._tokens, self._spare):
      flying.append((cut, self._start(key, function, [rows[i] for i in cut.index_n], cut)))
      if len(flying) > 1:  # the host makes the next batch while the devices work on this one
        _land(*flying.pop(0), results)
    for each in flying:
      _land(*each, results)
    return results

  def _start(self, key: Any, function: Callable, rows: Sequence[Row], cut: Cut) -> Any:
    most = max((len(row.columns) for row in rows), default=0)
    slots = cut.length if most > cut.length // 2 else 1 << max(most - 1, 0).bit_length()
    batch = as_batch(rows, cut.count, cut.length, slots, self._frame)
    batch |= self.tables(batch['token_BT'])
    if self._speller is not None:
      batch['character_BTW'] = self._speller.characters(batch['token_BT'])
    return self.call(key, function, batch)

  def tables(self, token_BT: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the ids of further tables, `<name>_BT`, of so many tokens."""
    return {f'{name}_BT': np.full_like(token_BT, value) for name, value in self._tables.items()}

  def call(self, key: Any, function: Callable[..., Any], batch: Mapping[str, Any]) -> Any:
    """Starts a function on a batch; returns its result on the devices. Arguments as of `run`;
    compiled at its first use with arrays of these shapes."""
    arguments = self._variables, self.devices.put_global(batch)
    shape = (key, *((name, np.shape(value)) for name, value in sorted(batch.items())))
    if shape not in self._compiled:
      whole = NamedSharding(self.devices.mesh, PartitionSpec())
      self._compiled[shape] = self.devices.compile(function, arguments, out_shardings=whole)
    return self._compiled[shape](*arguments)


def _land(cut: Cut, found: Any, results: list[Any]) -> None:
  leaves, tree = jax.tree.flatten(jax.device_get(found))
  rows = len(cut.index_n)
  if any(np.isnan(leaf[:rows]).any() for leaf in leaves if leaf.dtype.kind == 'f'):
    raise UserError(NAN)
  for place, index in enumerate(cut.index_n):
    results[index] = tree.unflatten([leaf[place] for leaf in leaves])
