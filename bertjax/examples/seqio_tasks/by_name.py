"""Text by what names it: TensorFlow is imported for Tasks, Mixtures and TFDS builders alone.

The tables are of the texts that come with bertjax and are read with TensorFlow; see `registered`.
"""

import difflib
from collections.abc import Iterable
from typing import Any

from bertjax.errors import UserError
from bertjax.text import corpus as corpus_lib
from bertjax.text.corpus import Corpus

# Name of a Task -> TFDS builder, and its feature that holds the text.
TFDS = dict(
  wikipedia=('wikipedia/20230601.en:1.0.0', 'text'),
  wiki40b=('wiki40b/en:1.3.0', 'text'),
  c4=('c4/en:3.1.0', 'text'),
  lm1b=('lm1b:1.1.0', 'text'),
  books=('pg19:0.1.1', 'book_text'),
)
LANGUAGES = 'ar de en es fr hi id it ja ko nl pt ru tr vi zh-cn'.split()
# Language -> the Task of its Wiki-40B.
WIKI40B = {language: f'wiki40b_{language.replace("-", "_")}' for language in LANGUAGES}
WIKIPEDIA_BOOKS, WIKI40B_LANGUAGES = 'wikipedia_books', 'wiki40b_languages'  # Mixtures
WITH_TENSORFLOW = (*TFDS, *WIKI40B.values(), WIKIPEDIA_BOOKS, WIKI40B_LANGUAGES)


def open_corpus(name: str, documents: int = 0, module: str = '', **how: Any) -> Corpus:
  """Opens a corpus as `corpora.open_corpus` does, but files and python_docs without TensorFlow.
  Raises UserError as there, or where the text needs a package that is not installed."""
  if module or name.startswith('tfds:') or name in WITH_TENSORFLOW:
    try:
      # Importing `registered` registers the names.
      from bertjax.examples.seqio_tasks import corpora, registered  # noqa: F401
    except ModuleNotFoundError as error:
      raise UserError(
        f'{name} is read with {error.name}, which is not installed: pip install -r '
        'requirements.txt, or give files'
      ) from error
    return corpora.open_corpus(name, documents, module, **how)
  if name == corpus_lib.PYTHON_DOCS:
    corpus = corpus_lib.open_python_docs()
  else:
    corpus = open_files(name, (corpus_lib.PYTHON_DOCS, *WITH_TENSORFLOW), **how)
  return corpus.first(documents) if documents else corpus


def open_files(name: str, known: Iterable[str], **how: Any) -> Corpus:
  """Opens files as `corpus.open_files` does; a mistake names the nearest of the known texts."""
  try:
    return corpus_lib.open_files(name, **how)
  except UserError as error:
    near = difflib.get_close_matches(name, list(known), 1)
    hint = f'. Did you mean {near[0]!r}?' if near else ''
    raise UserError(f'{error}{hint}') from error
