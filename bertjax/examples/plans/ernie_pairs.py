"""ERNIE 1.0's pairs: does B follow A? Label 1 is yes; negatives are made from the positives.

PaddlePaddle/ERNIE 1.0, batching.py and pretraining.py: positives are read in buffers of 1000, and
every buffer makes as many negatives. It is shuffled, and item i is paired with item i + 1, the last
with the first. A is the first segment of item i if that has at most (length - 3) // 2 tokens, else
its second; B the first segment of item i + 1 if that fits the rest, else its second; where it still
does not fit the pair is dropped (counted). Positives and negatives of a buffer are then shuffled
together. So both A and B may be first segments, and a next pair never is: a quirk of the original.

Its positives came ready made. Here they are BERT's chunks of two sentences and more, cut into A and
B in order (`pairs.py`, with dupe_factor and short_prob). Such chunks fill the row, and negatives,
made of their first halves, do not: the length alone then tells 0.91 of the pairs of 64 tokens from
Chinese Wikipedia. With `halves`, A keeps the tokens next to B and B those next to A, each at most
half of the row, and the length tells 0.55.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from bertjax import counter_rng
from bertjax.data_contracts import Piece, Spec
from bertjax.examples import layout
from bertjax.examples.plans import pairs

BUFFER = 1000  # positives
_POSITIVES = pairs.Task('swapped', swap=True, least=2)
_SHUFFLE, _TOGETHER = range(2)


@dataclasses.dataclass(frozen=True)
class Options(pairs.Options):
  """Fields of `config.data.plan` besides those of pairs.

  Attributes:
    halves: A and B have half of the row each, so that the length does not tell the label.
  """

  halves: bool = True


def build(store, spec: Spec, window: int = pairs.WINDOW) -> Iterator[Piece]:
  """Makes the plan as `pairs.build` does, where next is 1 for B that follows A. Counts positives,
  negatives, long_negatives (dropped), truncated_tokens and lone_sentences. Raises UserError: no
  document of two sentences."""
  found = pairs.pieces(store, spec, window, _POSITIVES)
  return _buffers(found, spec.length - 3, spec.seed, spec.options.halves)


def _buffers(pieces, usable, seed, halves):
  """Yields the examples of whole buffers, whatever the pieces."""
  left, number = None, 0
  for column, count in pieces:
    positive = _in_order(column)
    if halves:
      positive, cut = _cut(positive, usable // 2)
      count = count | dict(cut_tokens=cut)
    if left is not None:
      positive = {k: np.concatenate([left[k], value]) for k, value in positive.items()}
    whole = len(positive['a_start']) // BUFFER * BUFFER
    left = {k: value[whole:] for k, value in positive.items()}
    yield _made({k: value[:whole] for k, value in positive.items()}, usable, seed, number, count)
    number += whole // BUFFER
  if left is not None:
    yield _made(left, usable, seed, number, {})


def _in_order(column) -> dict[str, np.ndarray]:
  """Returns start and length, int64, of A and B as they stand in the text."""
  a_n = column['a_length'].astype(np.int64)
  b_n = column['length'].astype(np.int64) - 3 - a_n
  swapped_n = column['swapped'] > 0
  either = lambda one, other: np.where(swapped_n, other, one)
  return dict(
    a_start=either(column['a_start'], column['b_start']),
    a_length=either(a_n, b_n),
    b_start=either(column['b_start'], column['a_start']),
    b_length=either(b_n, a_n),
  )


def _cut(positive, most) -> tuple[dict[str, np.ndarray], int]:
  """Returns the pairs with at most so many tokens on each side of the border, and what was cut."""
  a_n, b_n = (np.minimum(positive[f'{side}_length'], most) for side in 'ab')
  dropped_n = positive['a_length'] - a_n
  cut = int((dropped_n + positive['b_length'] - b_n).sum())
  return positive | dict(a_start=positive['a_start'] + dropped_n, a_length=a_n, b_length=b_n), cut


def _made(positive, usable, seed, number, count):
  """Returns the examples of the buffers from `number` on, positives and negatives, and counts."""
  items = len(positive['a_start'])
  index_n = np.arange(items)
  buffer_n = number + index_n // BUFFER
  negative, fits_n = _negatives(positive, usable, _shuffled(seed, buffer_n, _SHUFFLE))
  both = {k: np.concatenate([positive[k], negative[k][fits_n]]) for k in positive}
  label_n = np.repeat([1, 0], [items, int(fits_n.sum())])
  order_n = _shuffled(seed, np.append(buffer_n, buffer_n[fits_n]), _TOGETHER)
  column = dict(
    a_start=both['a_start'],
    b_start=both['b_start'],
    a_length=both['a_length'].astype(np.int32),
    length=(both['a_length'] + both['b_length'] + 3).astype(np.int32),
    next=label_n.astype(np.int8),
  )
  count = {k: v for k, v in count.items() if k != 'random_next'}
  made = dict(positives=items, negatives=int(fits_n.sum()), long_negatives=int((~fits_n).sum()))
  return {name: value_n[order_n] for name, value_n in column.items()}, count | made


def _negatives(positive, usable, order_n):
  """Pairs neighbours of the shuffled buffers; returns them and which ones fit."""
  # Item i + 1 of its own buffer: the last one's is the first.
  next_n = np.arange(len(order_n)) + 1
  last_n = (next_n % BUFFER == 0) | (next_n == len(order_n))
  following_n = order_n[np.where(last_n, np.arange(len(order_n)) // BUFFER * BUFFER, next_n)]

  def pick(item_n, room_n):  # the first segment if it has room, else the second
    first_n, part = positive['a_length'][item_n] <= room_n, ('start', 'length')
    each = ((positive[f'a_{name}'][item_n], positive[f'b_{name}'][item_n]) for name in part)
    return [np.where(first_n, a_n, b_n) for a_n, b_n in each]

  a_start_n, a_n = pick(order_n, np.full(len(order_n), usable // 2))
  b_start_n, b_n = pick(following_n, usable - a_n)
  negative = dict(a_start=a_start_n, a_length=a_n, b_start=b_start_n, b_length=b_n)
  # A buffer of one item has no other.
  return negative, (a_n + b_n <= usable) & (following_n != order_n)


def _shuffled(seed: int, buffer_n: np.ndarray, site: int) -> np.ndarray:
  """Returns the indices, buffer by buffer, in random order within each."""
  key = counter_rng.fold(counter_rng.root(seed, 'ernie_pairs'), site)
  # The draw of an item follows from its place in its buffer.
  by_buffer = np.argsort(buffer_n, kind='stable')
  sorted_n = buffer_n[by_buffer]
  draw_n = counter_rng.fold(counter_rng.fold(key, sorted_n), layout.number_within(sorted_n))
  return by_buffer[np.lexsort((draw_n, sorted_n))]


PLAN = pairs.PLAN._replace(options=Options, build=build)
