"""Single texts as rows of a batch: framed by special tokens, with blanks to be filled in.

'the [MASK] sat'   ->   [CLS] the [MASK] sat [SEP]      (BERT)
                        the <mask> sat <sep> <cls>      (XLNet)
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bertjax.errors import UserError

BLANK = '[MASK]'  # in a text, whatever the vocabulary calls its mask token


class Frame(NamedTuple):
  """The special tokens around a text."""

  # before, after: their ids
  before: tuple[int, ...] = ()
  after: tuple[int, ...] = ()
  last_type: int = 0  # segment of the very last token; all others are in segment 0
  stands_last: bool = False  # whether the last token stands for the text, and not the first

  @property
  def turned(self) -> bool:
    """True if the [CLS] of a text is its last token."""
    return self.stands_last and not self.before


class Sentence(NamedTuple):
  """A text in its frame."""

  id_n: np.ndarray  # int32
  # begin, end: columns of the text itself
  begin: int
  end: int
  blanks: tuple[int, ...] = ()  # columns of the mask tokens that stand for blanks


class Row(NamedTuple):
  """A row of a batch."""

  id_n: np.ndarray  # ids that the model reads
  columns: Sequence[int] = ()  # of the slots, ascending
  targets: Sequence[int] = ()  # ids there, where they are known
  second: int = 0  # column where the second text of a pair begins, in segment 1; 0: there is none


def bert_frame(special: Mapping[str, int | None]) -> Frame:
  """[CLS] text [SEP], or the last token that its rows end with, of what the vocabulary has of
  them."""
  before, after = special['cls'], special.get('last', special['sep'])
  return Frame(() if before is None else (before,), () if after is None else (after,))


def causal_frame(special: Mapping[str, int | None]) -> Frame:
  """Returns the frame of a text that is read from left to right: the end of a text before it, or
  [CLS], of what the vocabulary has of them, and nothing behind it."""
  begin = next((i for role in ('eos', 'sep', 'cls') if (i := special.get(role)) is not None), None)
  return Frame(() if begin is None else (begin,))


class PairFrame(NamedTuple):
  """The special tokens of a text that is read and of one that is written."""

  # before, after: ids around both
  before: tuple[int, ...]
  after: tuple[int, ...]
  begin: int  # id that the decoder reads first

  @property
  def start(self) -> tuple[int, ...]:
    """Ids that stand before the first word that the decoder writes."""
    return (self.begin, *self.before)


def pair_frame(framed: bool, special: Mapping[str, int | None]) -> PairFrame:
  """Returns [CLS] text [SEP], where the decoder begins with [SEP], or text [SEP], where it begins
  with the id 0, of what the vocabulary has of them."""
  before, after, _, _ = bert_frame(special)
  return PairFrame(before, after, after[0]) if framed and after else PairFrame((), after, 0)


def encode(texts: Sequence[str], vocabulary: Any, frame: Frame) -> list[Sentence]:
  """Returns the texts as they are: one that spells a mask token spells it."""
  return [_framed([ids], frame, -1) for ids in vocabulary.encode_batch(texts)]


def blanks_in(vocabulary: Any) -> tuple[str, ...]:
  """Returns what stands for a blank in a text: BLANK, and the vocabulary's own mask token, if it
  has one."""
  mask = vocabulary.special['mask']
  return tuple(dict.fromkeys([BLANK] if mask is None else [BLANK, vocabulary.pieces[mask]]))


def encode_blanks(texts: Sequence[str], vocabulary: Any, frame: Frame) -> list[Sentence]:
  """Returns the texts with a mask token for each of `blanks_in`. Raises UserError if the vocabulary
  has no mask token."""
  mask = vocabulary.special['mask']
  if mask is None:
    raise UserError(
      'sentences are completed at the mask token, which this vocabulary has none of: expected a '
      'model with one, and in a training run config.evals.fill_mask.sentences=()'
    )
  # The space before a blank goes with it: some vocabularies would make a token of it alone.
  pattern = re.compile('|'.join(rf'\s*{re.escape(each)}' for each in blanks_in(vocabulary)))
  parts = [pattern.split(text) for text in texts]
  encoded = iter(vocabulary.encode_batch([part for text in parts for part in text]))
  return [_framed([next(encoded) for _ in text], frame, mask) for text in parts]


def _framed(parts: Sequence[Any], frame: Frame, mask: int) -> Sentence:
  """Returns the parts with a mask token between each two, in their frame."""
  ids, blanks = [*frame.before, *parts[0]], []
  for part in parts[1:]:
    blanks.append(len(ids))
    ids += [mask, *part]
  end = len(ids)
  return Sentence(np.array([*ids, *frame.after], np.int32), len(frame.before), end, tuple(blanks))


def cut(sentence: Sentence, room: int, frame: Frame) -> Sentence:
  """Returns the sentence without what its text has beyond `room` columns, frame included."""
  if len(sentence.id_n) <= room:
    return sentence
  end = room - len(frame.after)
  id_n = np.concatenate([sentence.id_n[:end], sentence.id_n[sentence.end :]])
  return Sentence(id_n, sentence.begin, end, tuple(c for c in sentence.blanks if c < end))


def blanked(sentence: Sentence, mask: int) -> list[Row]:
  """Returns a row for each token of the text, which is hidden in it and asked for."""
  rows = []
  for column in range(sentence.begin, sentence.end):
    id_n = sentence.id_n.copy()
    id_n[column] = mask
    rows.append(Row(id_n, (column,), (int(sentence.id_n[column]),)))
  return rows


def continued(sentence: Sentence) -> Row:
  """Each token of the text is asked for where the one before it stands; the very first token of a
  row has none before it."""
  columns = range(max(sentence.begin, 1), sentence.end)
  targets = [int(sentence.id_n[column]) for column in columns]
  return Row(sentence.id_n, [column - 1 for column in columns], targets)


def as_batch(
  rows: Sequence[Row], count: int, length: int, slots: int, frame: Frame
) -> dict[str, np.ndarray]:
  """Returns rows, at most `count` of them, as a batch [count, length] with so many slots, an
  example each; see types.py."""
  zeros = lambda width: np.zeros((count, width), np.int32)
  weights = lambda width: np.zeros((count, width), np.float32)
  batch = {f'{name}_BT': zeros(length) for name in ('token', 'example', 'type', 'position')}
  batch |= dict(first_BG=zeros(1), example_weight_BG=weights(1))
  batch |= dict(target_pos_BP=zeros(slots), target_BP=zeros(slots))
  batch |= dict(weight_BP=weights(slots), masked_BP=weights(slots))
  for number, row in enumerate(rows):
    width, used = len(row.id_n), len(row.columns)
    batch['token_BT'][number, :width] = row.id_n
    batch['example_BT'][number, :width] = 1
    batch['position_BT'][number, :width] = np.arange(width)
    batch['type_BT'][number, row.second or width : width] = 1
    batch['type_BT'][number, width - 1 : width] = frame.last_type or int(row.second > 0)
    batch['first_BG'][number] = max(width - 1, 0) if frame.stands_last else 0
    batch['example_weight_BG'][number] = 1
    batch['target_pos_BP'][number, :used] = row.columns
    batch['weight_BP'][number, :used] = batch['masked_BP'][number, :used] = 1
    batch['target_BP'][number, : len(row.targets)] = row.targets
  return batch
