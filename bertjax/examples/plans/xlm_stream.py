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

import itertools
from collections.abc import Iterator

import numpy as np

from bertjax.data_contracts import Chosen, Piece, Plan, Ranges, Spec
from bertjax.errors import UserError
from bertjax.examples import languages
from bertjax.examples.plans import blocks
from bertjax.options import NoOptions

WINDOW = 1 << 19  # sentences whose offsets are held at once


def build(store, spec: Spec, window: int = WINDOW) -> Iterator[Piece]:
  """Makes the plan without draws; see `Plan.build`.

  Columns: sentence int64 (whose first token is the row's first or second), offset int64 (tokens of
  it that an earlier row took; -1 where the row begins with the </s> before it), sentences int32
  (how many it touches), length, and of a store with languages group and weight int32, the
  sentences that begin in the row. Counts cut_sentences, rows that begin inside one. Raises
  UserError: parallel text alone.
  """
  spans = _spans(store)
  if not spans:
    raise UserError(
      f'{store.path} holds parallel text alone: expected monolingual documents for '
      'the plan xlm_stream. Prepare the store with some, or use translation_pairs'
    )
  window = max(window, spec.length)
  return (piece for span in spans for piece in _rows(store, span, spec.length, window))


def ranges(store, spec: Spec, chosen: Chosen) -> Ranges:
  """Returns the `Ranges` of some rows; language_BT is the row's, if the store has languages."""
  column = chosen.column
  found = blocks.stream_ranges(store, column, column['offset'] < 0, store.special['sep'])
  if 'group' not in column:
    return found
  language_n = np.repeat(column['group'], found.length_E)
  return found._replace(table=dict(language=language_n.astype(np.int32)))


def _spans(store) -> list[tuple[int, int]]:
  """Returns the ranges of sentences of one language, without those of parallel documents."""
  kind_S, total = languages.kinds(store), len(store.sentences) - 1
  if kind_S is None:
    return [(0, total)]
  edge = np.concatenate([[0], np.flatnonzero(np.diff(kind_S)) + 1, [total]])
  return [span for span in itertools.pairwise(edge.tolist()) if kind_S[span[0]] % 2 == 0]


def _rows(store, span, length, window):
  for column, count in blocks.cut_anywhere(store, span, length, window, lead=0):
    if 'language' in store.columns:
      language = store.column('language')[span[0]]
      column['group'] = np.full(len(column['length']), language, np.int32)
      column['weight'] = column['sentences'] - (column['offset'] > 0).astype(np.int32)
    yield column, count


PLAN = Plan(NoOptions, ('sep',), build, ranges, least=lambda options: 2)
