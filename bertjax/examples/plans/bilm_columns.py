"""Rows of a language model in both directions: two texts, each of which goes on where it stopped.

  step 0   | a0 a1 a2 a3 | z9 z8 z7 z6 |     column 0 of both streams, of three targets a row
  step 1   | a3 a4 a5 a6 | z6 z5 z4 z3 |     a4 is the target after a3, z5 that after z6

One stream is read forwards and one backwards, from its end. Both have all sentences of the corpus,
in two orders that are drawn anew for every epoch (allenai/bilm-tf, bilm/data.py:
BidirectionalLMDataset); without `shuffle_sentences` in its own order. A row is the tokens of the
first text and of the second one, each with the target of its last token; `second_B` is the place
where the second begins. The original never ends a column: what is left of it here is a shorter row.
"""

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np

from bertjax.data_contracts import Chosen, Piece, Plan, Ranges, Spec
from bertjax.examples import layout
from bertjax.examples.column_stream import ColumnStream
from bertjax.examples.plans.chunks import end_of


@dataclasses.dataclass(frozen=True)
class Options:
  """Fields of `config.data.plan`.

  Attributes:
    ends: name of the special token behind each sentence; '' where the text of the store has it.
    shuffle_sentences: both texts have orders of their own in every epoch.
  """

  ends: str = ''
  shuffle_sentences: bool = True


@dataclasses.dataclass(frozen=True, eq=False)
class _Sentences:
  """The store's sentences as its documents."""

  sentences: np.ndarray
  documents: np.ndarray


def build(store, spec: Spec) -> Iterator[Piece]:
  """Makes the plan, how many rows an epoch has; see `Plan.build`. Raises UserError: the vocabulary
  lacks the special token."""
  predicted, columns = max(_streams(store, spec)[0].size - 1, 0), _columns(spec)
  length_t = np.full(-(-predicted // columns), columns, np.int32)
  length_t[-1:] -= -predicted % columns
  return iter([(dict(length=np.repeat(2 * length_t + 2, spec.rows)), {})])


def ranges(store, spec: Spec, chosen: Chosen) -> Ranges:
  """Returns the `Ranges` of some rows of an epoch."""
  streams, columns = _streams(store, spec), _columns(spec)
  epoch = chosen.epoch if chosen.shuffle and spec.options.shuffle_sentences else None
  size = streams[0].size
  step_E, lane_E = np.divmod(chosen.index_E, spec.rows)
  begin_E = lane_E * size + step_E * columns
  length_E = np.minimum(columns, size - 1 - step_E * columns) + 1
  from_E = begin_E, spec.rows * size - begin_E - length_E
  found = [
    s.ranges(s.order(epoch), first_E, length_E) for s, first_E in zip(streams, from_E, strict=True)
  ]
  start_r, length_r = (np.concatenate([each[i] for each in found]) for i in (0, 1))
  total = int(length_E.sum())
  end_m = np.zeros(2 * total, bool)  # places of both texts, each row after row, as they are read
  end_m[np.concatenate([found[0][2], total + found[1][2]])] = True
  place_n = _interleaved(length_E, total)
  end_n = end_m[place_n]
  (special_s,) = np.nonzero(end_n)
  return Ranges(
    start_r=start_r,
    length_r=length_r,
    special_s=special_s,
    id_s=np.full(len(special_s), streams[0].ends),
    length_E=2 * length_E,
    order_n=(np.cumsum(~end_m) - 1)[place_n[~end_n]],
    row=dict(start=step_E == 0, second=length_E),
  )


def _interleaved(length_E: np.ndarray, total: int) -> np.ndarray:
  """Returns the place of each token of the rows among those of both texts: the second one turned
  round."""
  owner_n, offset_n = layout.ragged(2 * length_E)
  own_n = length_E[owner_n]
  second_n = offset_n >= own_n
  within_n = np.where(second_n, 2 * own_n - 1 - offset_n, offset_n)
  return layout.starts(length_E)[owner_n] + within_n + total * second_n


def _columns(spec: Spec) -> int:
  """Returns the targets of a row in each direction; tokens of a row are those of both, and two."""
  return spec.length // 2 - 1


def _streams(store, spec: Spec) -> tuple[ColumnStream, ColumnStream]:
  view, end = _sentences(store), end_of(store, spec.options.ends)
  return (
    ColumnStream(view, spec.rows, end, spec.seed, 'forwards'),
    ColumnStream(view, spec.rows, end, spec.seed, 'backwards'),
  )


@functools.lru_cache(maxsize=4)  # training, and evaluation in between
def _sentences(store) -> _Sentences:
  return _Sentences(store.sentences, np.arange(len(store.sentences)))


PLAN = Plan(Options, (), build, ranges, ordered=True, row=('start', 'second'))
