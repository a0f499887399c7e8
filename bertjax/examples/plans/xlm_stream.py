"""XLM's streams: per language one long line of sentences, cut into rows wherever a row is full.

facebookresearch/XLM, dataset.py:StreamDataset. Every sentence is followed by </s> (`sep`), one more
stands at the head of the stream, and a row is the next `length` tokens; nothing marks its ends, so
most rows begin inside a sentence. The original cuts a stream into as many columns as its batch has
rows, and fills it up with </s>; here it is one column whose rows are permuted, and the last row is
short.

Languages are sampled by their share of sentences, not of rows, though those of some are longer.

A stream is a range of the store without change of language: one per language if the text was
prepared language by language, more and shorter ones if it was mixed. Parallel documents (see
translation_pairs.py) are left to the translation steps.
"""

from collections.abc import Iterator

import numpy as np

from bertjax.data_contracts import Chosen, Piece, Plan, Ranges, Spec
from bertjax.errors import UserError
from bertjax.examples import languages
from bertjax.examples.plans.blocks import stream_ranges
from bertjax.options import NoOptions

WINDOW = 1 << 19  # sentences whose offsets are held at once


def build(store, spec: Spec, window: int = WINDOW) -> Iterator[Piece]:
  """Makes the plan without draws; see `Plan.build`.

  Columns: sentence int64 (whose first token is the row's first or second), offset int64 (tokens of
  it that an earlier row took; -1 where the row begins with the </s> before it), sentences int32
  (how many it touches), length, and of a store with languages group and weight int32, the
  sentences that begin in the row. Counts cut_sentences, rows that begin inside one. Raises
  UserError: a length below 2, or parallel text alone.
  """
  length = spec.length
  if length < 2:
    raise UserError(f'a stream needs rows of at least 2 tokens, got length {length}')
  spans = _spans(store)
  if not spans:
    raise UserError(
      f'{store.path} holds parallel text alone: expected monolingual documents for '
      'the plan xlm_stream. Prepare the store with some, or use translation_pairs'
    )
  window = max(window, length)
  return (piece for span in spans for piece in _rows(store, span, length, window))


def ranges(store, spec: Spec, chosen: Chosen) -> Ranges:
  """Returns the `Ranges` of some rows; language_BT is the row's, if the store has languages."""
  column = chosen.column
  found = stream_ranges(store, column, column['offset'] < 0, store.special['sep'])
  if 'group' not in column:
    return found
  language_n = np.repeat(column['group'], found.length_E)
  return found._replace(table=dict(language=language_n.astype(np.int32)))


def _spans(store) -> list[tuple[int, int]]:
  """Returns the ranges of sentences of one language, without those of parallel documents."""
  total = len(store.sentences) - 1
  if 'language' not in store.columns:
    return [(0, total)]
  language_S, parallel_S = store.column('language'), np.zeros(total, bool)
  first_n = store.documents[languages.parallel(store)]
  parallel_S[first_n] = parallel_S[first_n + 1] = True
  change_S = (language_S[1:] != language_S[:-1]) | (parallel_S[1:] != parallel_S[:-1])
  edge = np.concatenate([[0], np.flatnonzero(change_S) + 1, [total]])
  spans = zip(edge[:-1].tolist(), edge[1:].tolist(), strict=True)
  return [span for span in spans if not parallel_S[span[0]]]


def _rows(store, span, length, window):
  """Yields the rows of one stream; a place counts the tokens and </s> of the whole store."""
  begin_s, end_s = span
  place_of = lambda sentence: int(store.sentences[sentence]) + sentence
  head, tail = place_of(begin_s) - 1, place_of(end_s)
  for first in range(begin_s, end_s, window):
    # Each sentence takes a place at least: the last row ends within `length` sentences more.
    last = min(first + window + length, end_s)
    place = np.asarray(store.sentences[first : last + 1]) + np.arange(first, last + 1)
    stop = place[min(window, end_s - first)] - 1
    numbers = -(-(place[0] - 1 - head) // length), -(-(stop - head) // length)
    begin = head + length * np.arange(*numbers)
    end = np.minimum(begin + length, tail)
    owner = np.searchsorted(place, begin + 1, 'right') - 1
    column = dict(
      sentence=first + owner,
      offset=begin - place[owner],
      sentences=(np.searchsorted(place, end) - owner).astype(np.int32),
      length=(end - begin).astype(np.int32),
    )
    if 'language' in store.columns:
      column['group'] = np.full(len(begin), store.column('language')[begin_s], np.int32)
      column['weight'] = column['sentences'] - (column['offset'] > 0).astype(np.int32)
    yield column, dict(cut_sentences=int((column['offset'] > 0).sum()))


PLAN = Plan(NoOptions, ('sep',), build, ranges)
