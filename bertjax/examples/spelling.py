"""Words as their characters: the bytes of UTF-8 between marks (allenai/bilm-tf, bilm/data.py).

Whatever language a word is of, its bytes are ids below 256. Longer words are cut at their end.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bertjax.errors import UserError, warn
from bertjax.vocab import whole_words
from bertjax.vocab.vocabulary import Vocabulary, read_vocabulary

# Ids beside the 256 bytes (UnicodeCharsVocabulary).
BEGIN_TEXT, END_TEXT, BEGIN_WORD, END_WORD, PADDING = range(256, 261)
_CUT = (
  '%d of %d words are longer than %d bytes: the model reads their beginnings alone, as in '
  'the original; config.model.characters is how many it reads'
)
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

  Raises:
    UserError: a word without any character, as half of a surrogate pair has no bytes.
  """
  found, cut = np.full((len(words), most), PADDING, np.int32), 0
  for row, word in zip(found, words, strict=True):
    ids = [marks[word]] if word in marks else list(word.encode('utf-8', 'ignore'))
    if not ids:
      raise UserError(
        f'the word {word!r} has none of the characters that words are read by, the bytes of UTF-8: '
        'expected text, mend it'
      )
    cut += len(ids) > most - 2
    ids = [BEGIN_WORD, *ids[: most - 2], END_WORD]
    row[: len(ids)] = ids
  return found, cut


class Speller:
  """Words of any spelling: those that a vocabulary lacks get numbers behind its own.

  Attributes:
    vocabulary: whose texts keep all words, if it is one of whole words; else the given one.
  """

  def __init__(self, vocabulary: Vocabulary, most: int):
    """Takes the vocabulary of the model; most is as of `characters`."""
    self._most, self._pieces, self._own = most, list(vocabulary.pieces), vocabulary.size
    self._said = False
    self._marks = marks_of(vocabulary.pieces, vocabulary.special)
    self._lowercase, self._end = vocabulary.lowercase, vocabulary.special.get('eos')
    no_text = {i for i in vocabulary.special.values() if i is not None}
    self._index = {word: i for i, word in enumerate(self._pieces) if i not in no_text}
    self.vocabulary = vocabulary
    if vocabulary.type in whole_words.OF_WORDS:
      self.vocabulary = dataclasses.replace(
        vocabulary, pieces=self._pieces, _encode=lambda texts: [*map(self._numbers, texts)]
      )

  def _numbers(self, text: str) -> list[int]:
    found = [self._number(word) for word in (text.lower() if self._lowercase else text).split()]
    return [*found, self._end] if found and self._end is not None else found

  def _number(self, word: str) -> int:
    if word not in self._index:
      self._index[word] = len(self._pieces)
      self._pieces.append(word)
    return self._index[word]

  def characters(self, token_BT: np.ndarray) -> np.ndarray:
    """Returns the characters of words by their numbers, int32 [B, T, W]. Says once how many are
    cut."""
    word_n, at_BT = np.unique(token_BT, return_inverse=True)
    own = int(np.searchsorted(word_n, self._own))
    spell = lambda numbers, marks: characters([self._pieces[i] for i in numbers], self._most, marks)
    (known, cut), (new, more) = spell(word_n[:own], self._marks), spell(word_n[own:], {})
    if cut + more and not self._said:
      warn(_CUT, cut + more, len(word_n), self._most - 2)
      self._said = True
    return np.concatenate([known, new])[at_BT.reshape(token_BT.shape)]


def speller(model: Any, vocabulary: Vocabulary) -> Speller | None:
  """Returns the speller of a `config.model` that reads words by their characters; None: it does
  not."""
  most = model.characters if 'characters' in model else 0
  return Speller(vocabulary, most) if most else None


def marks_of(pieces: Sequence[str], special: Mapping[str, int | None]) -> dict[str, int]:
  """Returns the marks of a text's ends: cls and sep."""
  ends = dict(cls=BEGIN_TEXT, sep=END_TEXT)
  return {pieces[i]: mark for role, mark in ends.items() if (i := special[role]) is not None}


@functools.lru_cache(maxsize=4)  # training, and evaluation in between
def table(store, most: int) -> np.ndarray:
  """Spells the pieces of a store's vocabulary, int32 [V, W]; cls and sep are the marks of a text's
  ends. Logs how many are cut."""
  pieces: Any = store.meta['vocabulary'].get('pieces')
  if pieces is None:
    folder = store.path / 'vocab'
    pieces = read_vocabulary(folder if folder.exists() else store.path.parent / 'vocab').pieces
  found, cut = characters(pieces, most, marks_of(pieces, store.special))
  if cut:
    warn(_CUT, cut, len(found), most - 2)
  return found
