"""Sentences of words as rows: [CLS] pieces of the words [SEP], each word encoded by itself.

The first piece of a word stands for it (Devlin et al. 2019, section 5.3).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bertjax.errors import UserError
from bertjax.examples.labelled.common import texts
from bertjax.vocab.vocabulary import Vocabulary


class Row(NamedTuple):
  """A row of tokens."""

  id_n: np.ndarray  # int32, special tokens included
  first_n: np.ndarray  # int64, columns of the first pieces of the words that it has room for
  tokens: int  # that it would have if there were room


def rows(sentences: Sequence[Sequence[str]], vocabulary: Vocabulary, length: int) -> list[Row]:
  """Returns the rows of some sentences of words, of at most `length` tokens. A word is encoded
  behind a blank, as it stands in a text. One that has no piece, such as a control character, is
  [UNK], so that it can have a tag."""
  cls, sep = texts.special(vocabulary, ('cls', 'sep'))
  if length <= 2:
    raise UserError(f'config.length={length} leaves no room for words: 2 tokens are special')
  known = list(dict.fromkeys(word for words in sentences for word in words))
  pieces = dict(zip(known, vocabulary.encode_batch([f' {word}' for word in known]), strict=True))
  if not all(len(piece_n) for piece_n in pieces.values()):
    unk_n = np.array(texts.special(vocabulary, ('unk',)), np.int32)
    pieces = {word: piece_n if len(piece_n) else unk_n for word, piece_n in pieces.items()}
  rows = []
  for words in sentences:
    own = [pieces[word] for word in words]
    size_n = np.fromiter(map(len, own), np.int64, len(own))
    first_n = 1 + np.cumsum(size_n) - size_n
    kept_n = np.concatenate([[cls], *own])[: length - 1]
    id_n = np.append(kept_n, sep).astype(np.int32)
    rows.append(Row(id_n, first_n[first_n < length - 1], int(size_n.sum()) + 2))
  return rows
