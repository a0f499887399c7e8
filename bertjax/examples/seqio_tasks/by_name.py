"""Text by what names it: TensorFlow is imported for Tasks, Mixtures and TFDS builders alone."""

from collections.abc import Sequence

from bertjax.errors import UserError
from bertjax.examples.seqio_tasks import names
from bertjax.text import corpus as corpus_lib
from bertjax.text.corpus import Corpus


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
  """Opens a corpus as `corpora.open_corpus` does, but files and python_docs without TensorFlow.

  Raises:
    UserError: as there; or the text needs a package that is not installed.
  """
  files = (errors, field, columns, verbatim, skip_bad)
  if module or name.startswith('tfds:') or name in names.WITH_TENSORFLOW:
    try:
      # Importing `registered` registers the names.
      from bertjax.examples.seqio_tasks import corpora, registered  # noqa: F401
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
    known = (corpus_lib.PYTHON_DOCS, *names.WITH_TENSORFLOW)
    raise UserError(f'{error}{names.hint(name, known)}') from error
