"""RoBERTa's blocks: fairseq `TokenBlockDataset`; Liu et al. 2019, section 4.2.

The corpus is one virtual stream in which every sentence is followed by </s> (the `sep` token). A
block is a range of that stream with <s> (`cls`) in front. By `break_mode`, fairseq's
`--sample-break-mode`:

  complete      FULL-SENTENCES: as many whole sentences as fit, across the borders of documents
  complete_doc  DOC-SENTENCES: a block ends with its document; `config.data.pack` fills the rows
                with several of the short ones
  none          blocks of equal length, cut anywhere

A sentence longer than a block is cut into consecutive pieces of a block each, the last of which
goes on like a sentence: nothing is dropped (fairseq's 'complete' mode would keep it whole, and its
trainer then leave it out). Where the store knows languages, blocks of whole sentences end where the
language changes. Sentence s begins at place sentences[s] + s of the stream.

With `separator` one more </s> stands between documents: fairseq's README preprocesses with
--keep-empty, so a blank line is a sentence without words (section 4.2 says "an extra separator
token"). Such a sentence is numbered as the others, behind the last one of its document.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Literal

import numpy as np

from bertjax.data_contracts import Chosen, Columns, Piece, Plan, Ranges, Spec
from bertjax.examples import languages, layout

WINDOW = 1 << 19  # sentences whose offsets are held at once


@dataclasses.dataclass(frozen=True)
class Options:
  """Fields of `config.data.plan`.

  Attributes:
    break_mode: where a block ends: behind a whole sentence (complete) or a document at the latest
      (complete_doc), or anywhere (none).
    separator: one more </s> between documents; 'complete_doc' has none, as in fairseq.
  """

  break_mode: Literal['complete', 'complete_doc', 'none']
  separator: bool


class Separated:
  """A store whose documents are followed by an empty sentence, all but the last one."""

  def __init__(self, store):
    self.special = store.special
    self._store, self.sentences = store, self
    self._documents = store.documents + np.arange(len(store.documents))

  def __len__(self) -> int:
    return len(self._store.sentences) + len(self._documents) - 2

  def __getitem__(self, at) -> np.ndarray:
    """Returns the first token of these sentences."""
    at_n = np.arange(at.start, at.stop) if isinstance(at, slice) else np.asarray(at)
    return self._store.sentences[at_n - (np.searchsorted(self._documents, at_n, 'right') - 1)]


_separated = functools.lru_cache(maxsize=4)(Separated)  # it numbers all documents


def stream_of(store, options: Options):
  """Returns the store as the stream has it."""
  apart = options.separator and options.break_mode != 'complete_doc'
  return _separated(store) if apart else store


def build(store, spec: Spec, window: int = WINDOW) -> Iterator[Piece]:
  """Makes the plan without draws; see `Plan.build`.

  Columns: sentence int64 (the first one), offset int64 (tokens of it that an earlier block took),
  sentences int32 (how many it touches), length with <s> and </s>, and group of whole sentences,
  where documents that are a sentence and its translation are left out. Counts cut_sentences, the
  blocks that begin inside one. The last block of a document, of a language or of the corpus is as
  short as its text.
  """
  block, mode = spec.length - 1, spec.options.break_mode
  stream = stream_of(store, spec.options)
  if mode == 'none':
    return cut_anywhere(stream, (0, len(stream.sentences) - 1), block, window)
  kind_S = languages.kinds(store)
  if kind_S is not None and stream is not store:  # an empty sentence is of the kind before it
    first_n = store.documents[1:-1]
    kind_S = np.insert(kind_S, first_n, kind_S[first_n - 1])
  return _blocks(stream, kind_S, block, mode == 'complete_doc', max(window, spec.length))


def ranges(store, spec: Spec, chosen: Chosen) -> Ranges:
  """Returns the `Ranges` of some examples: <s> sentence </s> sentence </s> .."""
  lead_E = np.ones(len(chosen.column['length']), bool)
  return stream_ranges(stream_of(store, spec.options), chosen.column, lead_E, store.special['cls'])


def stream_ranges(store, column: Columns, lead_E: np.ndarray, lead: int) -> Ranges:
  """Returns the `Ranges` of some ranges of the stream: sentence, offset and sentences as `build`
  yields them; length, in which a `lead` counts where lead_E says that the example begins with that
  id."""
  length_E, lead_E = column['length'].astype(np.int64), lead_E.astype(np.int64)
  example_n, number_n = layout.ragged(column['sentences'])
  sentence_n = column['sentence'][example_n] + number_n
  begin_n = store.sentences[sentence_n]
  end_n = store.sentences[sentence_n + 1] + sentence_n + 1
  offset_E = np.maximum(column['offset'], 0)
  block_E = store.sentences[column['sentence']] + column['sentence'] + offset_E
  from_n = np.maximum(begin_n + sentence_n, block_E[example_n])
  to_n = np.minimum(end_n, (block_E + length_E - lead_E)[example_n])
  closed_n = to_n == end_n
  start_E = layout.starts(length_E)
  sep_n = ((start_E + lead_E - block_E)[example_n] + to_n - 1)[closed_n]
  lead_n = start_E[lead_E > 0]
  return Ranges(
    start_r=from_n - sentence_n,
    length_r=to_n - from_n - closed_n,
    special_s=np.concatenate([lead_n, sep_n]),
    id_s=np.repeat([lead, store.special['sep']], [len(lead_n), len(sep_n)]),
    length_E=length_E,
  )


def _blocks(store, kind_S, block, within_documents, window):
  total = len(store.sentences) - 1
  first, begin = 0, 0
  while first < total:
    last = min(first + window, total)
    place = np.asarray(store.sentences[first : last + 1]) + np.arange(first, last + 1)
    edge, owner = _edges(place, block)
    limit = edge + block
    if within_documents:
      limit = np.minimum(limit, _document_ends(store, first + owner))
    kind = None if kind_S is None else kind_S[first:last]
    if kind is not None:
      limit = np.minimum(limit, _kind_ends(kind, place, owner))
    complete = (limit <= place[-1]) | (last == total)
    following = np.searchsorted(edge, limit, 'right') - 1
    following[~complete] = len(edge)  # the next window finishes it
    links = chain(following, int(np.searchsorted(edge, begin)), len(edge) - 1)
    if links[-1] == len(edge):
      links.pop()
    at, end = np.array(links[:-1], np.int64), np.array(links[1:], np.int64)
    column = _columns(first, place, owner[at], (edge[at], edge[end]))
    if kind is not None:
      column['group'] = kind[owner[at]].astype(np.int32) // 2
      of_text_n = kind[owner[at]] % 2 == 0
      column = {name: value[of_text_n] for name, value in column.items()}
    # A cut sentence fills one block with its first piece, so its second begins the next one.
    yield column, dict(cut_sentences=int((column['offset'] == block).sum()))
    begin = edge[links[-1]]
    first += int(owner[links[-1]])


def cut_anywhere(
  store, span: tuple[int, int], size: int, window: int, lead: int = 1
) -> Iterator[Piece]:
  """Cuts the stream of a range of sentences into equal parts of `size` places, wherever a part is
  full; columns and counts as of `build`. With `lead` 1 a token stands before each part, with 0 none
  does, and the stream begins with the </s> before its first sentence."""
  before = 1 - lead  # places of a sentence that lie before its own
  head, tail = (int(store.sentences[sentence]) + sentence for sentence in span)
  head -= before
  for first in range(*span, window):
    # Each sentence takes a place at least: the last part ends within `size` sentences more.
    last = min(first + window + size, span[1])
    place = np.asarray(store.sentences[first : last + 1]) + np.arange(first, last + 1)
    start, stop = place[0] - before, place[min(window, last - first)] - before
    begin = head + size * np.arange(-(-(start - head) // size), -(-(stop - head) // size))
    owner = np.searchsorted(place, begin + before, 'right') - 1
    column = _columns(first, place, owner, (begin, np.minimum(begin + size, tail)), lead)
    yield column, dict(cut_sentences=int((column['offset'] > 0).sum()))


def _edges(place, block):
  """Returns where a block may begin or end (sentences, cuts, the end), and in which sentence."""
  pieces = -(-np.diff(place) // block)
  owner, number = layout.ragged(pieces)
  edge = np.append(place[owner] + number * block, place[-1])
  return edge, np.append(owner, len(place) - 1)


def _document_ends(store, sentence):
  """Returns the stream place where each sentence's document ends."""
  low = np.searchsorted(store.documents, sentence[0], 'right') - 1
  high = np.searchsorted(store.documents, sentence[-1], 'right')
  bound = np.asarray(store.documents[low : high + 1])
  end = bound[np.minimum(np.searchsorted(bound, sentence, 'right'), len(bound) - 1)]
  return store.sentences[end] + end


def _kind_ends(kind, place, owner):
  """Returns the stream place where the language of each sentence of a window ends there, or where
  pairs of translations begin or end, if so."""
  change = np.flatnonzero(kind[1:] != kind[:-1]) + 1
  end = np.append(place[change], np.iinfo(np.int64).max)
  return end[np.searchsorted(change, owner, 'right')]


def chain(following: np.ndarray, at: int, end: int) -> list[int]:
  """Follows the links from `at` until `end` or beyond."""
  link, found = following.tolist(), [at]
  while at < end:
    at = link[at]
    found.append(at)
  return found


def _columns(first, place, owner, span, lead=1):
  """Returns the columns of the blocks (begin, end) = span, each beginning in first + owner."""
  begin, end = span
  return dict(
    sentence=first + owner,
    offset=begin - place[owner],
    sentences=(np.searchsorted(place, end) - owner).astype(np.int32),
    length=(end - begin + lead).astype(np.int32),
  )


PLAN = Plan(Options, ('cls', 'sep'), build, ranges, least=lambda options: 3)
