"""Vocabularies that others have published, each read once: of some that takes seconds."""

import functools
import pathlib

from bertjax.vocab.vocabulary import Vocabulary, load_vocabulary

XLM = 'xlm-xnli15/codes_xnli_15'


@functools.cache
def vocabulary(shared: pathlib.Path, name: str) -> Vocabulary:
  """The one of this name in the folder of development data."""
  return load_vocabulary(shared / 'tokenizers' / name)
