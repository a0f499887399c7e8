"""Text by what names it: TensorFlow is imported for Tasks, Mixtures and TFDS builders alone."""

from typing import Any

from bertjax.errors import UserError
from bertjax.examples.seqio_tasks import names
from bertjax.text import corpus as corpus_lib
from bertjax.text.corpus import Corpus


def open_corpus(name: str, documents: int = 0, module: str = '', **how: Any) -> Corpus:
  """Opens a corpus as `corpora.open_corpus` does, but files and python_docs without TensorFlow.
  Raises UserError as there, or where the text needs a package that is not installed."""
  if module or name.startswith('tfds:') or name in names.WITH_TENSORFLOW:
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
    corpus = names.open_files(name, (corpus_lib.PYTHON_DOCS, *names.WITH_TENSORFLOW), **how)
  return corpus.first(documents) if documents else corpus
