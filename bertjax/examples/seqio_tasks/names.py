"""Names of the texts that come with bertjax and are read with TensorFlow; see `registered`."""

import difflib
from collections.abc import Iterable

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


def hint(name: str, known: Iterable[str]) -> str:
  """The end of a message about a name that is none: which of the known ones is nearest."""
  near = difflib.get_close_matches(name, list(known), 1)
  return f'. Did you mean {near[0]!r}?' if near else ''
