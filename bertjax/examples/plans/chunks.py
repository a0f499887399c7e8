"""Chunks of text of one length: what GPT and T5 read.

Each document may end with a special token. `across` joins the documents, so that a chunk goes on
with the next one (Radford et al. 2019; T5 joins them without a token between, t5/data/
preprocessors.py:reduce_concat_tokens); without it a chunk ends with its document, and
`config.data.pack` fills the rows with several of the short ones, which do not see each other. The
last chunk is as short as what is left. Where the store knows languages, chunks end where the
language changes; documents that are a sentence and its translation are left out.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from bertjax.data_contracts import Chosen, Piece, Plan, Ranges, Spec
from bertjax.errors import UserError
from bertjax.examples import languages as language_sampling
from bertjax.examples import layout
from bertjax.examples.column_stream import ColumnStream

WINDOW = 1 << 16  # texts that are cut at a time


@dataclasses.dataclass(frozen=True)
class Options:
  """Fields of `config.data.plan`.

  Attributes:
    ends: name of the special token behind each document; '' for none.
    across: a chunk may hold the end of one document and the beginning of the next.
  """

  ends: str
  across: bool


def build(store, spec: Spec, window: int = WINDOW) -> Iterator[Piece]:
  """Makes the plan without draws; see `Plan.build`. Columns: begin int64 (place in the stream of
  all documents), length int32 and, where the store knows languages, group int32. Counts cut_texts,
  those that take several chunks. Raises UserError: a length below 2, or the vocabulary lacks the
  special token."""
  if spec.length < 2:
    raise UserError(f'chunks of text need length >= 2, got {spec.length}')
  return _pieces(store, spec, _stream(store, spec), window)


def ranges(store, spec: Spec, chosen: Chosen) -> Ranges:
  """Returns the `Ranges` of some chunks."""
  stream = _stream(store, spec)
  length_E = chosen.column['length'].astype(np.int64)
  start_r, length_r, end_s = stream.ranges(stream.order(None), chosen.column['begin'], length_E)
  return Ranges(
    start_r=start_r,
    length_r=length_r,
    special_s=end_s,
    id_s=np.full(len(end_s), stream.ends or 0),
    length_E=length_E,
  )


def _pieces(store, spec: Spec, stream: ColumnStream, window: int) -> Iterator[Piece]:
  place_D, first_n, last_n = stream.order(None).place_D, *_texts(store, spec.options.across)
  for at in range(0, len(first_n), window):
    begin_n, end_n = place_D[first_n[at : at + window]], place_D[last_n[at : at + window]]
    owner_c, number_c = layout.ragged(-(-(end_n - begin_n) // spec.length))
    begin_c = begin_n[owner_c] + number_c * spec.length
    length_c = np.minimum(begin_c + spec.length, end_n[owner_c]) - begin_c
    column = dict(begin=begin_c, length=length_c.astype(np.int32))
    if 'language' in store.columns:
      sentence_n = store.documents[first_n[at : at + window]]
      column['group'] = store.column('language')[sentence_n][owner_c].astype(np.int32)
    yield column, dict(cut_texts=int((end_n - begin_n > spec.length).sum()))


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


PLAN = Plan(Options, (), build, ranges)
