"""DistilBERT's sequences: [CLS] a line of the text [SEP], long ones in pieces, poor ones left out.

transformers/examples/research_projects/distillation, lm_seqs_dataset.py:LmSeqsDataset. A sentence
of the store is a sequence: with `split='lines'` a line of the text, as in the original. In order:

  too long   what exceeds the row is cut into pieces, each between [CLS] and [SEP]. The original
             cuts every length - 2 tokens, its [CLS] counted, so the first piece has one token less
  too short  pieces of fewer than min_tokens tokens, special ones included, are left out
  unknown    pieces of which max_unknown or more is [UNK] are left out, special tokens counted; a
             vocabulary without [UNK] leaves out none

The original puts sequences of like lengths in a batch; here rows have one length, and
`config.data.pack` fills them with several sequences.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from bertjax.data_contracts import Chosen, Kept, Piece, Plan, Ranges, Spec
from bertjax.examples import layout
from bertjax.field_types import Count, PositiveShare

WINDOW = 1 << 16  # sentences per piece: `keep` has all of their tokens at once


@dataclasses.dataclass(frozen=True)
class Options:
  """Fields of `config.data.plan`.

  Attributes:
    min_tokens: of a sequence at least, special tokens included; the defaults are LmSeqsDataset's.
    max_unknown: share of its tokens from which on [UNK] are too many; 1: none is left out.
  """

  min_tokens: Count = 12
  max_unknown: PositiveShare = 0.5


def build(store, spec: Spec, window: int = WINDOW) -> Iterator[Piece]:
  """Makes the plan without draws; see `Plan.build`. Columns: start int64 (into the tokens), length
  with the two special tokens, group. Counts cut_sentences, which were too long, and
  short_sequences, which are left out."""
  total = len(store.sentences) - 1
  for first in range(0, total, window):
    last = min(first + window, total)
    sentence_n, column = _cut(np.asarray(store.sentences[first : last + 1]), spec.length)
    if 'language' in store.columns:
      language_S = store.column('language')[first:last]
      column['group'] = language_S[sentence_n].astype(np.int32)
    long_enough_n = column['length'] >= spec.options.min_tokens
    counts = dict(
      cut_sentences=int((np.bincount(sentence_n) > 1).sum()),
      short_sequences=int((~long_enough_n).sum()),
    )
    yield {name: value_n[long_enough_n] for name, value_n in column.items()}, counts


def ranges(store, spec: Spec, chosen: Chosen) -> Ranges:
  """Returns the `Ranges` of some sequences: [CLS] tokens [SEP]."""
  text_E = chosen.column['length'].astype(np.int64) - 2
  cls, sep = store.special['cls'], store.special['sep']
  ends = layout.joined((cls, 1), (layout.TEXT, text_E), (sep, 1))
  return Ranges(start_r=chosen.column['start'], length_r=text_E, **ends)


def keep(store, options: Options, token_n: np.ndarray, length_E: np.ndarray) -> Kept:
  """Returns bool [E], True if few enough tokens of a sequence are unknown, and the number of the
  other sequences as unknown_sequences: see `Plan.keep`."""
  owner_n, _ = layout.ragged(length_E)
  unknown = store.special.get('unk')
  is_unknown_n = token_n == (-1 if unknown is None else unknown)
  unknown_E = np.bincount(owner_n, is_unknown_n, len(length_E))
  few_E = unknown_E < options.max_unknown * length_E
  return few_E, dict(unknown_sequences=int((~few_E).sum()))


def _cut(place: np.ndarray, length: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
  """Cuts sentences place[i] .. place[i + 1]; returns the sentence of each piece, and columns."""
  size, room = np.diff(place), length - 2
  # The original cuts [CLS] and the tokens together, so the first piece has a token less.
  pieces = np.where(size > room, -(-(size + 1) // room), 1)
  sentence_n, number_n = layout.ragged(pieces)
  size_n, is_cut_n = size[sentence_n], pieces[sentence_n] > 1
  begin_n = np.maximum(number_n * room - 1, 0)
  end_n = np.where(is_cut_n, np.minimum((number_n + 1) * room - 1, size_n), size_n)
  start_n = place[sentence_n] + begin_n
  return sentence_n, dict(start=start_n, length=(end_n - begin_n + 2).astype(np.int32))


# The shortest row that is cut: [CLS] two tokens [SEP].
PLAN = Plan(Options, ('cls', 'sep'), build, ranges, least=lambda options: 4, keep=keep)
