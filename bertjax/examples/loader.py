"""From `Examples` to the batches of a run: batch i is made of rows i * batch_size and on.

Over a store there is no iterator state: starting at any index costs nothing, and the hosts, however
many, build their shares of the same global batch.
"""

import collections
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import grain
import numpy as np

from bertjax.data_contracts import PREFIX, HeldOutRows, RowSource

Batch = dict[str, np.ndarray]
ENDLESS = 1 << 62  # batches; Grain wants a length


class Place(NamedTuple):
  """The rows of a batch."""

  name: str  # of the source that they are of, where there are several; ''
  index: int  # number of the batch among those of the source
  rows: int  # number of rows


class Batches:
  """The global batches of some rows."""

  def __init__(self, examples: RowSource, batch_size: int):
    self.examples, self.batch_size = examples, batch_size

  def place(self, index: int) -> Place:
    """Returns the rows of batch `index`."""
    return Place('', index, self.batch_size)

  def at(self, index: int, hosts: tuple[int, int] = (0, 1)) -> tuple[Batch, dict[str, int]]:
    """Returns a host's share of batch `index` and its counts; arguments as `stream`."""
    size, (host, count) = self.batch_size, hosts
    row_n = index * size + np.arange(size * host // count, size * (host + 1) // count)
    return _counted(self.examples.batch(row_n, shuffle=True))


class Together:
  """Batches of several sources as one: its arrays are called NAME/ARRAY. Each batch has one of
  every source, or of that which is drawn."""

  def __init__(self, parts: Mapping[str, Batches], steps: Callable[[int], np.ndarray] | None):
    """Takes the batches by name. `steps` gives, of so many batches from the first one on, [n, 2]:
    which source, and the number of its batch; None: all sources, side by side."""
    self._parts, self._steps = parts, steps
    self._drawn = np.zeros((0, 2), np.int64)
    self.batch_size = max(part.batch_size for part in parts.values())

  def place(self, index: int) -> Place:
    """Returns the rows of batch `index`; of all sources they are as many."""
    if self._steps is None:
      return Place('', index, self.batch_size)
    drawn = self._drawn
    if index >= len(drawn):
      self._drawn = drawn = self._steps(2 * index + 1024)
    name = list(self._parts)[drawn[index, 0]]
    return Place(name, int(drawn[index, 1]), self._parts[name].batch_size)

  def at(self, index: int, hosts: tuple[int, int] = (0, 1)) -> tuple[Batch, dict[str, int]]:
    """Returns batch `index` and its counts, as `Batches` does."""
    name, own, _ = self.place(index)
    found = {key: self._parts[key].at(own, hosts) for key in ([name] if name else self._parts)}
    batch = {f'{key}/{array}': x for key, (each, _) in found.items() for array, x in each.items()}
    counts = collections.Counter()
    for _, more in found.values():
      counts.update(more)
    return batch, dict(counts)


def stream(
  batches: Batches | Together,
  start_index: int = 0,
  hosts: tuple[int, int] = (0, 1),
  threads: int = 1,
) -> Iterator[tuple[int, Batch, dict[str, int]]]:
  """Yields (index, batch, counts) of a run from any index on, in constant time, shuffled anew every
  epoch, without end; counts are of this host's real and padding tokens, predicted targets, and
  targets dropped for lack of slots. `hosts` is (this host, number of hosts): a host gets contiguous
  rows of the global batch. So many threads build 2 batches each ahead; 0 builds them when asked,
  which `StreamedRows` need."""
  numbers = grain.MapDataset.range(start_index, ENDLESS // batches.batch_size)
  made = numbers.map(lambda index: (index, *batches.at(index, hosts)))
  options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * threads)
  return iter(made.to_iter_dataset(options))


def eval_batches(
  examples: HeldOutRows, batch_size: int, limit: int = 0, chosen_n: np.ndarray | None = None
) -> Iterator[Batch]:
  """Yields rows of the first epoch of held-out text, each once, in order; the last batch is filled
  up with rows of example 0 and weight 0. `limit` rows in all are taken evenly from the epoch, or
  its first ones where rows follow each other; 0 takes every row. `chosen_n` gives the numbers of
  the rows instead, in any order. They are numbered 0, 1, .., so that draws which are spread over
  rows are spread over these."""
  if chosen_n is None:
    rows = min(limit or examples.rows, examples.rows)
    chosen_n = np.arange(rows) * (rows if examples.ordered else examples.rows) // rows
  for first in range(0, len(chosen_n), batch_size):
    place_n = np.arange(first, min(first + batch_size, len(chosen_n)))
    batch, _ = _counted(examples.batch(chosen_n[place_n], shuffle=False, place_n=place_n))
    missing = batch_size - len(batch['example_BT'])
    yield {name: _fill_up(name, value, missing, examples) for name, value in batch.items()}


def each(batch: Mapping[str, Any], name: str) -> list[Any]:
  """Returns the arrays of a name in a batch: one, or one of each phase that is summed in it."""
  return [value for key, value in batch.items() if key.rpartition('/')[2] == name]


def batch_sha256(batch: Mapping[str, Any]) -> str:
  """Returns a digest of the names, dtypes, shapes and bytes of a batch, sorted by name."""
  digest = hashlib.sha256()
  for name in sorted(batch):
    value = np.ascontiguousarray(batch[name])
    digest.update(f'{name} {value.dtype.str} {value.shape}\n'.encode())
    digest.update(value.data)
  return digest.hexdigest()


def _counted(batch: Batch) -> tuple[Batch, dict[str, int]]:
  """Takes dropped_B, which is for the ledger alone, out of the batch."""
  texts = [x for k, prefix in PREFIX.items() for x in each(batch, f'{prefix}example_B{k}')]
  weights = [x for letter in 'PTU' for x in each(batch, f'weight_B{letter}')]  # of tokens
  weights = weights or each(batch, 'example_weight_BG')
  real = sum(int(np.count_nonzero(example)) for example in texts)
  counts = dict(
    real=real,
    padding=sum(example.size for example in texts) - real,
    predicted=sum(int(np.count_nonzero(weight)) for weight in weights),
    dropped=int(batch.pop('dropped_B').sum()),
  )
  return batch, counts


def _fill_up(name, value, missing, examples):
  word = name in ('token_BT', 'out_token_BU')
  empty = (examples.store.special['pad'] or 0) if word else 0
  return np.pad(
    value, ((0, missing), *itertools.repeat((0, 0), value.ndim - 1)), constant_values=empty
  )
