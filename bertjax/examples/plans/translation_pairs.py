"""Translation language modelling: a sentence and its translation in one row.

facebookresearch/XLM, utils.py:concat_batches. A row is </s> source </s> </s> target </s>, positions
begin anew with the target, and every token has the language of its side. With
`reset_positions=False` the two </s> in the middle are one, which has the target's language, and
positions run on. What is masked is the masking's to say; either side can be predicted from the
other.

InfoXLM and XLM-E begin a row with <s> and have the single </s>: lead='cls', reset_positions=False.

A document of two sentences of different languages is a pair of translations. XLM's commands name
both orders of each pair (`en-ar,ar-en`), as steps of their own: `orders='both'` makes two rows of
it, and a group of each order. The original drops
sentences above 100 tokens; here a pair that exceeds its row is left out and counted.
"""

import dataclasses
from collections.abc import Iterator
from typing import Literal

import numpy as np

from bertjax.data_contracts import Chosen, Piece, Plan, Ranges, Spec
from bertjax.errors import UserError
from bertjax.examples import languages, layout

WINDOW = 1 << 20  # pairs per piece
_BASE = 1 << 8  # languages are numbered by a byte


@dataclasses.dataclass(frozen=True)
class Options:
  """Fields of `config.data.plan`.

  Attributes:
    lead: the special token that a row begins with.
    reset_positions: positions begin anew with the target, behind two </s>; else they run on
      behind one.
    orders: 'both': a pair is two rows, its second sentence first in the other; 'given': as it is.
  """

  lead: Literal['cls', 'sep'] = 'sep'
  reset_positions: bool = True
  orders: Literal['both', 'given'] = 'both'


def build(store, spec: Spec, window: int = WINDOW) -> Iterator[Piece]:
  """Makes the plan without draws; see `Plan.build`.

  Columns: source and target int64 (their sentences), a_length int32 (of the source), length, single
  int8 (one </s> in the middle), lead int32 (id of the first token), group int32 (256 * language of
  the source + language of the target). Counts long_pairs, which are left out. Raises UserError: no
  parallel text.
  """
  document_n = languages.parallel(store)
  if not len(document_n):
    raise UserError(
      f'{store.path} holds no parallel text: the plan translation_pairs expected documents of two '
      f'sentences in two of its languages {", ".join(store.languages)}. Prepare it with pairs, or '
      'leave the translation phase out'
    )
  return (
    _pairs(store, spec, document_n[first : first + window])
    for first in range(0, len(document_n), window)
  )


def ranges(store, spec: Spec, chosen: Chosen) -> Ranges:
  """Returns the `Ranges` of both sides of some examples; language_BT is that of each side."""
  column = chosen.column
  a_E, two_E = column['a_length'].astype(np.int64), 1 - column['single'].astype(np.int64)
  b_E, sep = column['length'] - a_E - 3 - two_E, store.special['sep']
  ends = layout.joined(
    (column['lead'], 1), (layout.TEXT, a_E), (sep, two_E), (sep, 1), (layout.TEXT, b_E), (sep, 1)
  )
  side_n = layout.in_turn(a_E + 1 + two_E, b_E + 2)
  restart_n = layout.in_turn(np.zeros_like(a_E), (a_E + 2) * two_E)
  language_n = np.repeat(layout.in_turn(*np.divmod(column['group'], _BASE)), side_n)
  _, place_n = layout.ragged(ends['length_E'])
  return Ranges(
    start_r=store.sentences[layout.in_turn(column['source'], column['target'])],
    length_r=layout.in_turn(a_E, b_E),
    table=dict(language=language_n.astype(np.int32)),
    position_n=(place_n - np.repeat(restart_n, side_n)).astype(np.int32),
    **ends,
  )


def _pairs(store, spec, document_n):
  source_n = store.documents[document_n]
  target_n, language_S = source_n + 1, store.column('language')
  rows = 2 if spec.options.orders == 'both' else 1
  if rows == 2:
    both_n = np.stack([source_n, target_n], 1)
    source_n, target_n = both_n.ravel(), both_n[:, ::-1].ravel()
  group_n = language_S[source_n].astype(np.int64) * _BASE + language_S[target_n]
  size_n = lambda sentence_n: store.sentences[sentence_n + 1] - store.sentences[sentence_n]
  single = int(not spec.options.reset_positions)
  length_n = size_n(source_n) + size_n(target_n) + 4 - single
  kept = length_n <= spec.length
  column = dict(
    source=source_n,
    target=target_n,
    a_length=size_n(source_n).astype(np.int32),
    length=length_n.astype(np.int32),
    single=np.full(len(source_n), single, np.int8),
    lead=np.full(len(source_n), store.special[spec.options.lead], np.int32),
    group=group_n.astype(np.int32),
  )
  return {k: value[kept] for k, value in column.items()}, dict(
    long_pairs=int((~kept).sum()) // rows
  )


PLAN = Plan(
  Options,
  ('cls', 'sep'),
  build,
  ranges,
  least=lambda options: 6,  # </s> a </s> </s> b </s>
  columns=('language',),
)
