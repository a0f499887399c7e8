"""A corpus: documents one after the other, here from files and from what Python carries.

`seqio_tasks/corpora.py` makes the same of seqio Tasks and TFDS builders; TensorFlow is imported
there alone.
"""

import dataclasses
import itertools
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence

from bertjax.errors import UserError
from bertjax.text import documents as documents_lib
from bertjax.text import python_docs, sentence_split
from bertjax.text.files import Files, find_sources, fingerprint
from bertjax.text.left_out import LeftOut

PYTHON_DOCS = 'python_docs'
BLOCK_BYTES = 2**18  # of documents that go to a worker at once


@dataclasses.dataclass
class Corpus:
  """Documents, one after the other."""

  name: str  # of the corpus
  fingerprint: list  # list of everything that its text depends on, for store.json
  # number of documents to pass over -> the records of the rest
  records: Callable[[int], Iterator[bytes]]
  documents: int | None = None  # number of documents, or None if it is not known
  files: Files | None = None  # the files, which know how far reading has come, or None
  columns: Sequence[str] = ()  # of the records
  languages: Sequence[str] = ()  # those that are known before reading, in order
  members: int = 1  # seqio Tasks that it is a Mixture of; 1 of anything else
  left_out: LeftOut = dataclasses.field(default_factory=LeftOut)  # faults of the last pass

  def first(self, documents: int) -> 'Corpus':
    """Returns the same corpus, so many documents of it."""
    take = lambda skip: itertools.islice(self.records(skip), max(documents - skip, 0))
    return dataclasses.replace(self, records=take, documents=documents, files=None)

  def batches(self, skip: int = 0) -> Iterator[list[bytes]]:
    """Yields groups of records, without the first `skip` documents. Raises UserError: what is wrong
    with the source, by name and place."""
    yield from documents_lib.blocks(self.records(skip), BLOCK_BYTES)

  def texts(self) -> Iterator[list[bytes]]:
    """Yields the groups of `batches`, each document as its text without the columns."""
    for batch in self.batches():
      yield [documents_lib.text_of(record, self.columns) for record in batch]

  def detect(self, given: str = sentence_split.AUTO) -> str:
    """Returns the split that is given; of AUTO guesses from the beginning of each part what a line
    is (`sentence_split.detect`): paragraphs if any part has them, since lines of one sentence
    mostly stay whole when split."""
    if given != sentence_split.AUTO:
      return given
    files = self.files
    parts = [files.alone(each) for each in files.sources if not each.parallel] if files else []
    found = {sentence_split.detect(self._beginning(part)) for part in parts or [self.records(0)]}
    return sentence_split.SENTENCES if sentence_split.SENTENCES in found else sentence_split.LINES

  def _beginning(self, records: Iterable[bytes]) -> Iterator[str]:
    for block in itertools.islice(documents_lib.blocks(records, BLOCK_BYTES), 4):
      for record in block:
        yield documents_lib.text_of(record, self.columns).decode('utf-8', 'replace')

  def done(self, position: int) -> float | None:
    """Returns the share of the corpus before this document, 0 to 1; None if unknown."""
    if self.files:
      return self.files.done / max(self.files.total, 1)
    return position / self.documents if self.documents else None


def open_files(
  name: str,
  errors: str = 'strict',
  field: str = 'text',
  columns: Sequence[str] = (),
  verbatim: bool = False,
  skip_bad: bool = False,
) -> Corpus:
  """Opens files of text, named as in `files.find_sources`; the other arguments are those of
  `files.Files`, and `columns` are read beside the languages that the name gives. Raises UserError
  for no such file, or one that is no text."""
  files = Files(find_sources(name), errors, field, verbatim=verbatim, left_out=LeftOut(skip_bad))
  if not files.total:
    raise UserError(f'{name}: all files are empty')
  files.check()
  asked = {*columns, *(['language'] if files.languages else [])}
  files.columns = [name for name in documents_lib.COLUMNS if name in asked]
  return Corpus(
    name=files.paths[0].name,
    fingerprint=fingerprint(files.sources),
    records=lambda skip: itertools.islice(files, skip, None),
    files=files,
    columns=files.columns,
    languages=files.languages,
    left_out=files.left_out,
  )


def open_python_docs() -> Corpus:
  """Opens the documentation that every Python carries."""
  return Corpus(
    name=PYTHON_DOCS,
    fingerprint=[dict(task=PYTHON_DOCS, python=platform.python_version())],
    records=lambda skip: itertools.islice(python_docs.documents(), skip, None),
  )
