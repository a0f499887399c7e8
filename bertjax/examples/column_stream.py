"""A corpus as one long stream, cut into columns that the rows of a batch read side by side.

Transformer-XL and XLNet hand memory from batch to batch, so row r of the next batch must go on
where row r of this one stopped. The stream of an epoch is all documents in an order of its own,
each with one more token behind it if `ends` says so. It is cut into `columns` of equal size,
and what is left over at its end is dropped.

  place   counts the tokens of the stream
  order   of an epoch: its documents, and the place where each begins

Only the offsets of the documents are held in memory, for the epochs last read.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np

from bertjax import counter_rng
from bertjax.examples import layout, shuffle


class Order(NamedTuple):
  """The stream of one epoch."""

  document_D: np.ndarray  # int64, in the order of the stream
  place_D: np.ndarray  # int64 [documents + 1], where each begins and the last one ends


@dataclasses.dataclass(frozen=True)
class ColumnStream:
  """The stream of every epoch."""

  store: Any  # the token store
  columns: int  # number of columns
  ends: int | None  # id of the token behind each document, or None
  seed: int  # of the orders
  name: str = 'documents'  # of their draws

  @property
  def size(self) -> int:
    """Places of a column."""
    documents = len(self.store.documents) - 1
    tokens = int(self.store.sentences[-1])
    return (tokens + documents * (self.ends is not None)) // self.columns

  def order(self, epoch: int | None) -> Order:
    """Returns the order of an epoch; None: that of the corpus."""
    return _order(self, epoch)

  def ranges(
    self, order: Order, begin_n: np.ndarray, length_n: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Maps ranges of the stream to int64 first tokens and lengths of ranges of the store; and the
    places of the tokens that end documents (`ends`), with the ranges laid end to end."""
    first_n, last_n = _touched(order, begin_n, begin_n + length_n)
    owner_m, offset_m = layout.ragged(last_n - first_n)
    rank_m = first_n[owner_m] + offset_m
    start_m = np.maximum(order.place_D[rank_m], begin_n[owner_m])
    stop_m = np.minimum(order.place_D[rank_m + 1], (begin_n + length_n)[owner_m])
    end_m = order.place_D[rank_m + 1] - (self.ends is not None)
    from_m = self._first_token(order, rank_m) + start_m - order.place_D[rank_m]
    closed_m = stop_m > end_m
    at_m = np.cumsum(stop_m - start_m) - 1
    return from_m, np.minimum(stop_m, end_m) - start_m, at_m[closed_m]

  def sentence_starts(
    self, order: Order, begin_n: np.ndarray, end_n: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns int64 index of the range, and place, of each sentence that begins in ranges of the
    stream, ascending in each. The token behind a document belongs to its last sentence."""
    first_n, last_n = _touched(order, begin_n, end_n)
    owner_m, offset_m = layout.ragged(last_n - first_n)
    rank_m = first_n[owner_m] + offset_m
    shift_m = order.place_D[rank_m] - self._first_token(order, rank_m)  # from token to place
    bounds = self.store.documents[order.document_D[rank_m]], self._last_sentence(order, rank_m)
    find = lambda token_m: np.clip(np.searchsorted(self.store.sentences, token_m), *bounds)
    low_m, high_m = find(begin_n[owner_m] - shift_m), find(end_n[owner_m] - shift_m)
    part_s, number_s = layout.ragged(high_m - low_m)
    place_s = self.store.sentences[low_m[part_s] + number_s] + shift_m[part_s]
    return owner_m[part_s], place_s

  def sentence_around(self, order: Order, place_n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the places at which the sentence of each of these places begins and ends."""
    rank_n = np.searchsorted(order.place_D, place_n, 'right') - 1
    shift_n = order.place_D[rank_n] - self._first_token(order, rank_n)
    last_n = self._last_sentence(order, rank_n) - 1
    sentence_n = np.searchsorted(self.store.sentences, place_n - shift_n, 'right') - 1
    sentence_n = np.minimum(sentence_n, last_n)  # the token behind the document
    stop_n = self.store.sentences[sentence_n + 1] + shift_n
    stop_n = np.where(sentence_n == last_n, order.place_D[rank_n + 1], stop_n)
    return self.store.sentences[sentence_n] + shift_n, stop_n

  def _first_token(self, order, rank_n):
    return self.store.sentences[self.store.documents[order.document_D[rank_n]]]

  def _last_sentence(self, order, rank_n):
    return self.store.documents[order.document_D[rank_n] + 1]


def _touched(order, begin_n, end_n):
  """Returns the documents, by rank, that ranges of at least one place touch: first and last + 1."""
  first_n = np.searchsorted(order.place_D, begin_n, 'right') - 1
  return first_n, np.searchsorted(order.place_D, end_n, 'left')


@functools.lru_cache(maxsize=4)  # training, and evaluation in between
def _order(stream: ColumnStream, epoch: int | None) -> Order:
  store, documents = stream.store, len(stream.store.documents) - 1
  document_D = np.arange(documents)
  if epoch is not None:
    key = counter_rng.fold(counter_rng.root(stream.seed, stream.name), epoch)
    document_D = shuffle.order(key, documents)
  bound_D = store.sentences[store.documents]
  size_D = np.diff(bound_D)[document_D] + (stream.ends is not None)
  return Order(document_D, np.concatenate([[0], np.cumsum(size_D)]))
