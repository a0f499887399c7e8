"""A copy of a vocabulary, whole or not there."""

import pathlib
import shutil

from bertjax.data.vocab.vocabulary import Vocabulary, load_vocabulary, read_vocabulary
from bertjax.errors import writing


def holds(directory: pathlib.Path, vocabulary: Vocabulary) -> bool:
  """Whether this vocabulary is the one that a directory keeps."""
  return directory.exists() and read_vocabulary(directory).meta == vocabulary.meta


def bring(path: str, lowercase: bool | None, directory: pathlib.Path) -> None:
  """Copies the vocabulary that a config names; one that is there was looked at when it came."""
  if not holds(directory, read_vocabulary(path, lowercase)):
    keep(load_vocabulary(path, lowercase), directory)


def keep(vocabulary: Vocabulary, directory: pathlib.Path | str) -> None:
  """Copies a vocabulary to a directory, in the place of another one; nothing where it is there."""
  directory = pathlib.Path(directory)
  if holds(directory, vocabulary):
    return
  with writing('the vocabulary of the run', directory):
    partial = directory.with_name(f'{directory.name}.partial')
    shutil.rmtree(partial, ignore_errors=True)
    vocabulary.save(partial)
    shutil.rmtree(directory, ignore_errors=True)
    partial.rename(directory)
