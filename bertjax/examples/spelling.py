"""Words as their characters: the bytes of UTF-8 between marks (allenai/bilm-tf, bilm/data.py).

Whatever language a word is of, its bytes are ids below 256. Longer words are cut at their end.
"""

import functools
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bertjax.vocab.vocabulary import read_vocabulary

# Ids beside the 256 bytes (UnicodeCharsVocabulary).
BEGIN_TEXT, END_TEXT, BEGIN_WORD, END_WORD, PADDING = range(256, 261)
MARKS = {'<S>': BEGIN_TEXT, '</S>': END_TEXT}


def characters(
  words: Sequence[str], most: int = 50, marks: Mapping[str, int] = MARKS
) -> tuple[np.ndarray, int]:
  """Spells words: begin, the bytes of the word, end, padding.

  Args:
    words: any.
    most: W; of longer words the first W - 2 bytes are read.
    marks: words that are no text -> the id between the marks.

  Returns:
    int32 [n, W], and the number of words that were cut.
  """
  found, cut = np.full((len(words), most), PADDING, np.int32), 0
  for row, word in zip(found, words, strict=True):
    ids = [marks[word]] if word in marks else list(word.encode('utf-8', 'ignore'))
    cut += len(ids) > most - 2
    ids = [BEGIN_WORD, *ids[: most - 2], END_WORD]
    row[: len(ids)] = ids
  return found, cut


@functools.lru_cache(maxsize=4)  # training, and evaluation in between
def table(store, most: int) -> np.ndarray:
  """Spells the pieces of a store's vocabulary, int32 [V, W]; cls and sep are the marks of a text's
  ends. Logs how many are cut."""
  pieces: Any = store.meta['vocabulary'].get('pieces')
  if pieces is None:
    folder = store.path / 'vocab'
    pieces = read_vocabulary(folder if folder.exists() else store.path.parent / 'vocab').pieces
  ends = dict(cls=BEGIN_TEXT, sep=END_TEXT)
  marks = {pieces[i]: mark for role, mark in ends.items() if (i := store.special[role]) is not None}
  found, cut = characters(pieces, most, marks)
  if cut:
    logging.warning('%d of %d words are longer than %d bytes, and cut', cut, len(found), most - 2)
  return found
