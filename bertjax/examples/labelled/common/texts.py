"""Texts and pairs of texts as rows: [CLS] a [SEP], [CLS] a [SEP] b [SEP]; of a vocabulary whose
texts have an end of their own, as words, <eos> a, <eos> a b; with marks at both ends, <S> a. Of one
with a last token of its own, GPT-1's for fine-tuning: _start_ a _delimiter_ b _classify_.

What is too long is cut from the longer of the two, of both alike (google-research/bert,
run_classifier.py:_truncate_seq_pair).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bertjax.errors import UserError
from bertjax.examples import layout
from bertjax.vocab.vocabulary import Vocabulary


class Row(NamedTuple):
  """A row of tokens."""

  id_n: np.ndarray  # int32, special tokens included
  type_n: np.ndarray  # int32, 0 of the first text, 1 of the second
  cut: int  # tokens that were left out


def rows(
  columns: Sequence[Sequence[str]], vocabulary: Vocabulary, length: int, separators: int
) -> list[Row]:
  """Returns the rows of some texts, or of pairs where `columns` has the seconds too, of at most
  `length` tokens; `separators` is the number of [SEP] between the two: RoBERTa has 2."""
  if vocabulary.ends_lines:
    begin = 'eos' if vocabulary.special['cls'] is None else 'cls'
    cls_n, sep_n, last_n = special(vocabulary, [begin]), [], []
  else:
    cls_n, sep_n, last_n = ([number] for number in ends(vocabulary))
  pair = len(columns) == 2
  between_n = sep_n * separators if pair else []
  around = len(cls_n) + len(between_n) + len(last_n)
  if length <= around + len(columns) - 1:
    raise UserError(f'config.length={length} leaves no room for texts: {around} tokens are special')
  a_texts, *seconds = [_encoded(texts, vocabulary) for texts in columns]
  b_texts = seconds[0] if pair else [()] * len(a_texts)
  a_n, b_n = (np.fromiter(map(len, found), np.int64, len(found)) for found in (a_texts, b_texts))
  a_lost, b_lost = (lost_n.tolist() for lost_n in layout.truncated(a_n, b_n, length - around))
  found = []
  for a, b, a_cut, b_cut in zip(a_texts, b_texts, a_lost, b_lost, strict=True):
    first_n = [*cls_n, *a[: len(a) - a_cut], *between_n]
    id_n = np.array([*first_n, *b[: len(b) - b_cut], *last_n], np.int32)
    first = len(first_n) if pair else len(id_n)
    type_n = np.repeat(np.arange(2, dtype=np.int32), (first, len(id_n) - first))
    found.append(Row(id_n, type_n, a_cut + b_cut))
  return found


def _encoded(texts: Sequence[str], vocabulary: Vocabulary) -> list[np.ndarray]:
  """Returns the ids of each text; a text that stands there several times is encoded once."""
  known = list(dict.fromkeys(texts))
  ids = dict(zip(known, vocabulary.encode_batch(known), strict=True))
  return [ids[text] for text in texts]


def ends(vocabulary: Vocabulary) -> list[int]:
  """Returns the ids that begin a row, stand between its texts and end it; errors as `special`."""
  last = 'sep' if vocabulary.special.get('last') is None else 'last'
  return special(vocabulary, ['cls', 'sep', last])


def special(vocabulary: Vocabulary, roles: Sequence[str]) -> list[int]:
  """Returns the ids of special tokens; UserError where the vocabulary lacks one."""
  found = [vocabulary.special[role] for role in roles]
  lacking = [role for role, number in zip(roles, found, strict=True) if number is None]
  if lacking:
    raise UserError(
      f'the vocabulary has no {" and no ".join(dict.fromkeys(lacking))}, which rows of texts need: '
      "expected another; GPT-1's gets _start_, _delimiter_ and _classify_ as docs/finetune.md says"
    )
  return [number for number in found if number is not None]


class WordRow(NamedTuple):
  """A row of tokens."""

  id_n: np.ndarray  # int32, special tokens included
  first_n: np.ndarray  # int64, columns of the first pieces of the words that it has room for
  tokens: int  # that it would have if there were room


def word_rows(
  sentences: Sequence[Sequence[str]], vocabulary: Vocabulary, length: int
) -> list[WordRow]:
  """Returns the rows of sentences of words, [CLS] pieces [SEP], of at most `length` tokens. The
  first piece of a word stands for it (Devlin et al. 2019, section 5.3). A word is encoded behind a
  blank, as it stands in a text. One that has no piece, such as a control character, is [UNK], so
  that it can have a tag."""
  cls, _, last = ends(vocabulary)
  if length <= 2:
    raise UserError(f'config.length={length} leaves no room for words: 2 tokens are special')
  known = list(dict.fromkeys(word for words in sentences for word in words))
  pieces = dict(zip(known, vocabulary.encode_unended([f' {word}' for word in known]), strict=True))
  if not all(len(piece_n) for piece_n in pieces.values()):
    unk_n = np.array(special(vocabulary, ('unk',)), np.int32)
    pieces = {word: piece_n if len(piece_n) else unk_n for word, piece_n in pieces.items()}
  rows = []
  for words in sentences:
    own = [pieces[word] for word in words]
    size_n = np.fromiter(map(len, own), np.int64, len(own))
    first_n = 1 + np.cumsum(size_n) - size_n
    kept_n = np.concatenate([[cls], *own])[: length - 1]
    id_n = np.append(kept_n, last).astype(np.int32)
    rows.append(WordRow(id_n, first_n[first_n < length - 1], int(size_n.sum()) + 2))
  return rows
