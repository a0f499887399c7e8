"""Tokenizers from transformers: which file of a directory is read."""

import pathlib

from bertjax.data.vocab import formats
from bertjax.data.vocab.vocabulary import load_vocabulary


def read(directory: pathlib.Path) -> pathlib.Path | None:
  """Returns the file of which `load_vocabulary`, which refuses some, makes the tokenizer of a
  directory of transformers; None where there is none."""
  return load_vocabulary(directory).files[0] if formats.files_of(directory) else None
