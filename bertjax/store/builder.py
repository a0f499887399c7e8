"""A token store while it is written: OUTPUT.partial, which becomes OUTPUT in one rename.

What was killed goes on behind its last part (`unfinished.py`), and ends with the same bytes as what
was not.
"""

import dataclasses
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bertjax import counter_rng
from bertjax.errors import UserError, amount, writing
from bertjax.machine import durable
from bertjax.store import unfinished
from bertjax.store.encode import COUNTED, Encoded
from bertjax.store.writer import Writer
from bertjax.text import phrases
from bertjax.text.left_out import NAMED
from bertjax.vocab.vocabulary import Vocabulary


@dataclasses.dataclass
class Stats:
  """Counts of a preparation, which go into store.json."""

  documents: int = 0  # in the source
  bytes: int = 0  # of their text
  empty_documents: int = 0  # dropped because nothing was left of them
  empty_sentences: int = 0  # dropped because they had no token
  replaced: int = 0  # characters in place of bytes that are not UTF-8
  broken_pairs: int = 0  # documents of parallel text dropped because one side had no token
  found_units: int = 0  # phrases and entities, in both stores
  spelled_special: int = 0  # special tokens spelled out in the text; they stay text
  bad_lines: int = 0  # malformed lines and records of files that were skipped
  bad_documents: int = 0  # malformed documents that were skipped
  bad_first: list[str] = dataclasses.field(default_factory=list)  # errors of the first, by place


class Kind(NamedTuple):
  """The parts of a store besides tokens: units, columns and languages."""

  finder: str = ''  # what looks for units
  columns: Sequence[str] = ()
  languages: Sequence[str] = ()  # those that have a number so far
  fixed: bool = False  # no other language may be added
  split: str = ''  # meaning of a line of the text, `sentence_split.LINES` and the like


class Partial:
  """A store that is being written: `stats` and `languages` so far, the writers `train` and
  `held_out`."""

  def __init__(self, output: pathlib.Path, identity: Mapping[str, Any], holdout: float, kind: Kind):
    """Starts a store of an identity (name, vocabulary, source, options, as in store.json), or goes
    on with one. Raises UserError where the directory or its .partial holds something else."""
    self._output, self._identity, self._holdout = output, dict(identity), holdout
    self._path = unfinished.partial_of(output)
    self._kind, self.languages = kind, list(kind.languages)
    self.stats, self._begun = Stats(), set()  # and the languages of which there is a document
    parts: dict[str, list] = dict(train=[], held_out=[])
    durable.free(output)
    if progress := unfinished.read_progress(self._path, self._identity):
      self.stats, parts = Stats(**progress['stats']), progress['parts']
      self.languages, self._begun = progress['languages'], set(progress['begun'])
    size, also = identity['vocabulary']['size'], (bool(kind.finder), kind.columns)
    self.train = Writer(self._path, size, parts['train'], *also)
    self.held_out = Writer(self._path / 'heldout', size, parts['held_out'], *also)

  @property
  def tokens(self) -> int:
    """Tokens so far, in both stores."""
    return self.train.tokens + self.held_out.tokens

  def add(self, batch: Encoded) -> None:
    """Appends a batch; each document goes to one of the two stores. Raises UserError for a language
    that is not among those the user fixed, or the 257th."""
    column = dict(batch.column)
    if batch.languages:
      column['language'] = self._numbers(batch.languages)[column['language']]
    size_D = batch.size_D[batch.size_D > 0]
    index_D = np.arange(len(size_D)) + self.train.documents + self.held_out.documents
    held_D = _is_held_out(index_D, self._holdout) & ~self._begins_language(column, size_D)
    held_S = np.repeat(held_D, size_D)
    held_n = np.repeat(held_S, batch.length_S)
    for writer, held in ((self.train, False), (self.held_out, True)):
      if np.any(held_D == held):
        in_n, in_S = held_n == held, held_S == held
        writer.add(
          batch.token_n[in_n],
          batch.length_S[in_S],
          size_D[held_D == held],
          None if batch.unit_n is None else batch.unit_n[in_n],
          {name: value_S[in_S] for name, value_S in column.items()},
        )
    first = self.stats.documents + 1
    named = [f'document {first + number}: {what}' for number, what in batch.bad.items()]
    self.stats.bad_first = [*self.stats.bad_first, *named][:NAMED]
    self.stats.documents += len(batch.size_D)
    for name in COUNTED:
      setattr(self.stats, name, getattr(self.stats, name) + int(batch.counted[name].sum()))
    self.stats.empty_documents += len(batch.size_D) - len(size_D) - len(batch.bad)
    self.stats.bad_documents += len(batch.bad)
    if batch.unit_n is not None:
      self.stats.found_units += int(np.count_nonzero(batch.unit_n == phrases.FOUND))

  def _begins_language(self, column: Mapping[str, np.ndarray], size_D: np.ndarray) -> np.ndarray:
    """Marks the first document of each language, bool [D]: it goes to training, since a text that
    nothing divides is one document."""
    first_D = np.zeros(len(size_D), bool)
    if 'language' in column:
      language_D = column['language'][np.cumsum(size_D) - size_D]
      for language, number in zip(*np.unique(language_D, return_index=True), strict=True):
        first_D[number] = int(language) not in self._begun
        self._begun.add(int(language))
    return first_D

  def _numbers(self, names: Sequence[str]) -> np.ndarray:
    """Returns the number of each language, and gives new ones their own where that is allowed."""
    new = [name for name in names if name not in self.languages]
    if new and self._kind.fixed:
      raise UserError(
        f'the text has the language {new[0]!r}, which has no id: expected one of '
        f'{", ".join(self.languages)}. Add it to --languages, or leave its text out'
      )
    self.languages += new
    if len(self.languages) > 256:
      raise UserError(f'a store holds 256 languages, and {self.languages[256]!r} is one more')
    return np.array([self.languages.index(name) for name in names], np.uint8)

  def cut(self) -> None:
    """Makes a part of what was added since the last cut, and notes how far the source was read.
    Raises UserError where units are looked for, and none was found so far."""
    if self._kind.finder and not self.stats.found_units:
      raise UserError(
        f'{self._kind.finder} found nothing in {amount(self.stats.documents, "documents")}, '
        f'{amount(self.tokens, "tokens")}. Case and script must be those of the text; pieces '
        'of one character do not count'
      )
    with writing('a part of the store', self._path):
      if not self.train.parts:
        # A kill within the first part leaves a store that goes on from its beginning.
        self._path.mkdir(parents=True, exist_ok=True)
        self._note(Stats(), list(self._kind.languages), set())
      self.train.cut()
      self.held_out.cut()
      self._note(self.stats, self.languages, self._begun)

  def _note(self, stats: Stats, languages: list[str], begun: set[int]) -> None:
    parts = dict(train=self.train.parts, held_out=self.held_out.parts)
    progress = dict(
      identity=self._identity, stats=dataclasses.asdict(stats), parts=parts, languages=languages,
      begun=sorted(begun),
    )  # fmt: skip
    durable.write_json(self._path / unfinished.PROGRESS, progress)

  def finish(self, vocabulary: Vocabulary) -> None:
    """Completes both stores and gives the directory its name."""
    if self.train.buffered or self.held_out.buffered:
      self.cut()
    with writing('the store', self._path):
      if self.held_out.documents:
        name = f'{self._identity["name"]} (held out)'
        meta = self._identity | dict(name=name, languages=self.languages)
        self.held_out.finish(vocabulary.word_starts, meta)
      elif (self._path / 'heldout').exists():
        shutil.rmtree(self._path / 'heldout')  # its parts are empty
      vocabulary.save(self._path / 'vocab')
      said = dict(
        stats=dataclasses.asdict(self.stats), languages=self.languages, split=self._kind.split
      )
      self.train.finish(vocabulary.word_starts, self._identity | said)
      (self._path / unfinished.PROGRESS).unlink()
      unfinished.give_name(self._path, self._output)


def _is_held_out(index_D: np.ndarray, holdout: float) -> np.ndarray:
  """Draws by the document's number. The first one trains and the second is held out, so that
  neither store of two documents is empty; but the first one of a language trains, see `Partial`."""
  if not holdout:
    return np.zeros(len(index_D), bool)
  drawn_D = counter_rng.uniform(counter_rng.fold(counter_rng.root(0, 'holdout'), index_D)) < holdout
  return np.where(index_D < 2, index_D == 1, drawn_D)
