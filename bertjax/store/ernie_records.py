"""Pretraining records of ERNIE 1.0, ready tokenised and segmented, as the documents of a store.

A record is a line of five fields between semicolons: token ids, sentence ids, position ids, segment
labels and the next-sentence label; the first four are numbers between spaces. Segment labels are -1
for [CLS] and [SEP], 0 where a word, phrase or entity begins and 1 where it goes on; they become the
store's units. The two segments of a record with label 1 are a document of two sentences, those of
another record are two documents: its label says that they do not belong together.
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Generator

import numpy as np

from bertjax.errors import UserError
from bertjax.store.encode import COUNTED, Encoded
from bertjax.text import files
from bertjax.text.left_out import LeftOut, Wrong
from bertjax.text.phrases import CONTINUES, FOUND, WORD
from bertjax.vocab.vocabulary import Vocabulary

PREFIX = 'ernie1:'
_BATCH = 1000  # records


@dataclasses.dataclass
class Records:
  """Records of some files, in order, whose ids belong to a vocabulary."""

  paths: list[pathlib.Path]
  vocabulary: Vocabulary
  left_out: LeftOut  # lines that are no records
  columns = ()
  languages = ()

  @property
  def name(self) -> str:
    """Name of the store: that of the first file."""
    return self.paths[0].name

  @property
  def fingerprint(self) -> list[dict]:
    """Fingerprint of the files, as in `Files`."""
    return files.fingerprint([files.Source(self.paths)])

  def detect(self) -> str:
    """Sentences are given."""
    return 'lines'

  def done(self, position: int) -> None:
    """Does nothing: the source cannot tell how far it was read."""

  def encoded(self, skip: int) -> Generator[Encoded, None, None]:
    """Yields batches of documents, without those that hold the first `skip` documents. Raises
    UserError with file and line for one that is no record of this vocabulary, unless left out."""
    self.left_out.clear()
    lines = (
      (path, number, line)
      for path in self.paths
      for number, line in enumerate(files.read_lines(path), 1)
    )
    for batch in iter(lambda: list(itertools.islice(lines, _BATCH)), []):
      encoded = self._encode(batch)
      if skip <= 0:
        yield encoded
      skip -= len(encoded.size_D)

  def _encode(self, batch) -> Encoded:
    segments, sizes, bytes_D = [], [], []
    for path, number, line in batch:
      try:
        pair, follows = _read(line, self.vocabulary)
      except ValueError as error:
        what = (
          'expected a record of ERNIE 1.0, token ids; sentence ids; position ids; segment labels; '
          f'label, got {line[:60]!r} ({error})'
        )
        self.left_out.refuse(f'{path}, line {number}', Wrong(what))
        continue
      segments += pair
      sizes += [2] if follows else [1, 1]
      bytes_D += [len(line)] if follows else [len(line), 0]
    token_n, label_n = np.concatenate(segments, 1) if segments else np.zeros((2, 0), np.int64)
    # A unit of several tokens was found; one of a single token is a word.
    longer_n = np.append(label_n[1:] > 0, False)
    unit_n = np.where(label_n > 0, CONTINUES, np.where(longer_n, FOUND, WORD))
    counted = {name: np.zeros(len(sizes), np.int64) for name in COUNTED}
    counted['bytes'] = np.array(bytes_D, np.int64)
    length_S = np.array([segment.shape[1] for segment in segments], np.int64)
    size_D = np.array(sizes, np.int64)
    return Encoded(token_n.astype(np.int32), length_S, size_D, counted, unit_n.astype(np.uint8))


def _read(line: bytes, vocabulary: Vocabulary) -> tuple[list[np.ndarray], bool]:
  """Returns ids and segment labels of both segments, int64 [2, n] each, and the label."""
  fields = line.split(b';')
  if len(fields) != 5:
    raise UserError(f'{len(fields)} fields')
  token_n, _, _, label_n = (np.array(field.split(), np.int64) for field in fields[:4])
  cls, sep = vocabulary.special['cls'], vocabulary.special['sep']
  special_n = np.flatnonzero(label_n == -1)
  if len(label_n) != len(token_n) or token_n[special_n].tolist() != [cls, sep, sep]:
    raise UserError(f'segment labels are not -1 at [CLS] {cls} and two [SEP] {sep} alone')
  if token_n.min() < 0 or token_n.max() >= vocabulary.size:
    wrong = token_n[(token_n < 0) | (token_n >= vocabulary.size)][0]
    raise UserError(f'id {wrong} of a vocabulary of {vocabulary.size}')
  both_2n = np.stack([token_n, label_n])
  segments = [both_2n[:, a + 1 : b] for a, b in itertools.pairwise(special_n)]
  if special_n[0] or special_n[-1] != len(token_n) - 1 or any(not s[1].size for s in segments):
    raise UserError('expected [CLS] A [SEP] B [SEP]')
  if any(segment[1, 0] for segment in segments):
    raise UserError('a segment begins inside a word')
  return segments, bool(int(fields[4]))
