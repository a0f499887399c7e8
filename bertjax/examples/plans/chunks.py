"""Chunks of text of one length: what GPT, T5 and DeBERTa read.

Each document may end with a special token. `across` joins the documents, so that a chunk goes on
with the next one (Radford et al. 2019; T5 joins them without a token between, t5/data/
preprocessors.py:reduce_concat_tokens); without it a chunk ends with its document, and
`config.data.pack` fills the rows with several of the short ones, which do not see each other. With
`frame` each chunk is [CLS] text [SEP] (microsoft/DeBERTa, experiments/language_model,
prepare_data.py). The last chunk is as short as what is left. Where the store knows languages,
chunks end where the language changes; documents that are a sentence and its translation are left
out.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from bertjax.data_contracts import Chosen, Piece, Plan, Ranges, Spec
from bertjax.errors import UserError
from bertjax.examples import languages as language_sampling
from bertjax.examples import layout
from bertjax.examples.column_stream import ColumnStream

WINDOW = 1 << 16  # texts that are cut at a time
FRAME = 2  # columns of a chunk that [CLS] and [SEP] take


@dataclasses.dataclass(frozen=True)
class Options:
  """Fields of `config.data.plan`.

  Attributes:
    ends: name of the special token behind each document; '' for none.
    across: a chunk may hold the end of one document and the beginning of the next.
    frame: each chunk stands between [CLS] and [SEP].
  """

  ends: str
  across: bool
  frame: bool = False


def build(store, spec: Spec, window: int = WINDOW) -> Iterator[Piece]:
  """Makes the plan without draws; see `Plan.build`. Columns: begin int64 (place in the stream of
  all documents), length int32, with its frame, and, where the store knows languages, group int32.
  Counts cut_texts, those that take several chunks. Raises UserError: the vocabulary lacks a special
  token."""
  if spec.options.frame and None in _frame(store):
    raise UserError(
      'config.data.plan.frame=True puts [CLS] and [SEP] around each chunk, and the vocabulary '
      'lacks one: take another (config.data.vocab)'
    )
  return _pieces(store, spec, _stream(store, spec), window)


def ranges(store, spec: Spec, chosen: Chosen) -> Ranges:
  """Returns the `Ranges` of some chunks."""
  stream = _stream(store, spec)
  length_E = chosen.column['length'].astype(np.int64)
  text_E = length_E - FRAME * spec.options.frame
  start_r, length_r, place_s = stream.ranges(stream.order(None), chosen.column['begin'], text_E)
  id_s = np.full(len(place_s), stream.ends or 0)
  if spec.options.frame:
    before_s = np.searchsorted(layout.starts(text_E), place_s, 'right')  # chunks begun by then
    first_E = layout.starts(length_E)
    place_s = np.concatenate([place_s + FRAME * before_s - 1, first_E, first_E + length_E - 1])
    id_s = np.concatenate([id_s, np.repeat(_frame(store), len(length_E))])
  return Ranges(start_r=start_r, length_r=length_r, special_s=place_s, id_s=id_s, length_E=length_E)


def _pieces(store, spec: Spec, stream: ColumnStream, window: int) -> Iterator[Piece]:
  place_D, first_n, last_n = stream.order(None).place_D, *_texts(store, spec.options.across)
  frame = FRAME * spec.options.frame
  room = spec.length - frame
  for at in range(0, len(first_n), window):
    begin_n, end_n = place_D[first_n[at : at + window]], place_D[last_n[at : at + window]]
    owner_c, number_c = layout.ragged(-(-(end_n - begin_n) // room))
    begin_c = begin_n[owner_c] + number_c * room
    length_c = np.minimum(begin_c + room, end_n[owner_c]) - begin_c + frame
    column = dict(begin=begin_c, length=length_c.astype(np.int32))
    if 'language' in store.columns:
      sentence_n = store.documents[first_n[at : at + window]]
      column['group'] = store.column('language')[sentence_n][owner_c].astype(np.int32)
    yield column, dict(cut_texts=int((end_n - begin_n > room).sum()))


def _texts(store, across: bool) -> tuple[np.ndarray, np.ndarray]:
  """Returns the first document of each text that is cut by itself, and the one behind its last."""
  documents = len(store.documents) - 1
  left_out_D = np.zeros(documents, bool)
  left_out_D[language_sampling.parallel(store)] = True
  edge_D = np.ones(documents, bool)  # whether a text begins with a document
  if across:
    edge_D = left_out_D | np.append(True, left_out_D[:-1])
    if 'language' in store.columns:
      language_D = store.column('language')[store.documents[:-1]]
      edge_D[1:] |= language_D[1:] != language_D[:-1]
  (first_n,) = np.nonzero(edge_D)
  last_n = np.append(first_n[1:], documents)
  kept_n = ~left_out_D[first_n]
  return first_n[kept_n], last_n[kept_n]


def _frame(store) -> list[Any]:
  return [store.special.get(name) for name in ('cls', 'sep')]


def _stream(store, spec: Spec) -> ColumnStream:
  return ColumnStream(store, 1, end_of(store, spec.options.ends), spec.seed)


def end_of(store, name: str) -> int | None:
  """Returns the id of the token behind every document; None: there is none. Raises UserError if the
  vocabulary lacks the special token."""
  end = store.special.get(name) if name else None
  if name and end is None:
    have = ', '.join(sorted(name for name, found in store.special.items() if found is not None))
    raise UserError(
      f'config.data.plan.ends={name!r} stands behind every document, but the vocabulary has the '
      f"special tokens {have} alone: name one of them, or '' for none"
    )
  return end


PLAN = Plan(Options, (), build, ranges, least=lambda options: 2 + FRAME * options.frame)
