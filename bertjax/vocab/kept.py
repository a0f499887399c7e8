"""A copy of a vocabulary, whole or not there."""

import pathlib
import shutil

from bertjax.errors import UserError, writing
from bertjax.machine import durable
from bertjax.vocab import formats
from bertjax.vocab.vocabulary import Vocabulary, load_vocabulary, read_vocabulary


def holds(directory: pathlib.Path, vocabulary: Vocabulary) -> bool:
  """Returns True if a directory keeps this vocabulary; False if it is empty or holds a part. Raises
  UserError if it holds files of something else."""
  if not directory.exists():
    return False
  try:
    found = read_vocabulary(directory)
  except UserError:
    own = {formats.CONFIG, 'vocab.txt', 'tokenizer.json', *(f.name for f in vocabulary.files)}
    if any(path.name not in own for path in directory.iterdir()):
      raise
    return False
  return found.reads_as(vocabulary)


def bring(path: str, lowercase: bool | None, directory: pathlib.Path) -> None:
  """Copies the vocabulary that a config names; one that is there was looked at when it came."""
  if not holds(directory, read_vocabulary(path, lowercase)):
    keep(load_vocabulary(path, lowercase), directory)


def keep(vocabulary: Vocabulary, directory: pathlib.Path | str) -> None:
  """Copies a vocabulary to a directory, in the place of another one; nothing where it is there."""
  directory = pathlib.Path(directory)
  if holds(directory, vocabulary):
    return
  with writing('the vocabulary of the run', directory), durable.directory(directory) as partial:
    vocabulary.save(partial)
    shutil.rmtree(directory, ignore_errors=True)
