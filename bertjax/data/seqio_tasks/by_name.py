"""Text by what names it: TensorFlow is imported for Tasks, Mixtures and TFDS builders alone."""

import difflib
from collections.abc import Sequence

from bertjax.data.text import corpus as corpus_lib
from bertjax.data.text.corpus import Corpus
from bertjax.errors import UserError

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
_WITH_TENSORFLOW = (*TFDS, *WIKI40B.values(), WIKIPEDIA_BOOKS, WIKI40B_LANGUAGES)


def open_corpus(
  name: str,
  documents: int = 0,
  module: str = '',
  errors: str = 'strict',
  field: str = 'text',
  columns: Sequence[str] = (),
  verbatim: bool = False,
  skip_bad: bool = False,
) -> Corpus:
  """As `corpora.open_corpus`; local files and python_docs are opened without TensorFlow.

  Raises:
    UserError: as there; or the text needs a package that is not installed.
  """
  files = (errors, field, columns, verbatim, skip_bad)
  if module or name.startswith('tfds:') or name in _WITH_TENSORFLOW:
    try:
      # Importing `registered` registers the names.
      from bertjax.data.seqio_tasks import corpora, registered  # noqa: F401
    except ModuleNotFoundError as error:
      raise UserError(
        f'{name} is read with {error.name}, which is not installed: pip install -r '
        'requirements.txt, or give files'
      ) from error
    return corpora.open_corpus(name, documents, module, *files)
  if name == corpus_lib.PYTHON_DOCS:
    corpus = corpus_lib.open_python_docs()
  else:
    corpus = _open_files(name, *files)
  return corpus.first(documents) if documents else corpus


def _open_files(name: str, *how) -> Corpus:
  try:
    return corpus_lib.open_files(name, *how)
  except UserError as error:
    known = (corpus_lib.PYTHON_DOCS, *_WITH_TENSORFLOW)
    near = difflib.get_close_matches(name, known, 1)
    raise UserError(f'{error}' + (f'. Did you mean {near[0]!r}?' if near else '')) from error
