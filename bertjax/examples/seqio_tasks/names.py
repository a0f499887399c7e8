"""Files of text, and the names of the texts that come with bertjax and that TensorFlow reads; see
`registered`.
"""

from collections.abc import Iterable
from typing import Any

from bertjax.errors import UserError, nearest
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


def open_files(name: str, known: Iterable[str], **how: Any) -> Corpus:
  """Opens files as `corpus.open_files` does; a mistake names the nearest of the known texts."""
  try:
    return corpus_lib.open_files(name, **how)
  except UserError as error:
    raise UserError(f'{error}{nearest(name, known)}') from error
