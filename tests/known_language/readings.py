"""How the rows of each plan may have come about, as `Reading`s of their words.

What a model can see of a row without its words, where its sentences and special tokens stand, is
taken from the batch: it is the same in every row, since all sentences are equally long.
"""

import numpy as np

from bertjax.types import Batch
from tests.known_language.inference import Reading
from tests.known_language.language import SPECIAL, TURNS


def original(batch: Batch) -> np.ndarray:
  """The ids of the text, with those back that a masking has hidden; int32 [B, T]."""
  token_BT = np.array(batch['token_BT'])
  row_n, slot_n = np.nonzero(batch['weight_BP'] > 0)
  token_BT[row_n, batch['target_pos_BP'][row_n, slot_n]] = batch['target_BP'][row_n, slot_n]
  return token_BT


def one_text(token_BT: np.ndarray, batch: Batch) -> list[Reading]:
  """The words of a row are one text."""
  del batch
  return [Reading(1.0, _running(token_BT), _never(token_BT))]


def next_pairs(token_BT: np.ndarray, batch: Batch, follows: float = 1 / 3) -> list[Reading]:
  """B follows A, or is another text. Of a document of two sentences BERT makes one pair that
  follows, or as often two that do not: A with another text, and what is left, B, with another one.
  So one in three follows."""
  place_BT, second_BT = _running(token_BT), _second(token_BT, batch)
  restart_BT = _never(token_BT)
  first_B = np.where(second_BT, place_BT, place_BT.shape[1]).min(1)
  restart_BT[np.arange(len(first_B)), np.minimum(first_B, place_BT.shape[1] - 1)] = True
  return [
    Reading(follows, place_BT, _never(token_BT)), Reading(1 - follows, place_BT, restart_BT)
  ]  # fmt: skip


def even_pairs(token_BT: np.ndarray, batch: Batch) -> list[Reading]:
  """B is another text, or follows A, as often: the label 1 of ERNIE is what BERT's 0 is."""
  return next_pairs(token_BT, batch, 1 / 2)[::-1]


def even_followers(token_BT: np.ndarray, batch: Batch) -> list[Reading]:
  """B follows A, or is another text, as often: XLNet's rows."""
  return next_pairs(token_BT, batch, 1 / 2)


def ordered_pairs(token_BT: np.ndarray, batch: Batch) -> list[Reading]:
  """A and B are in order, or exchanged."""
  place_BT, second_BT = _running(token_BT), _second(token_BT, batch)
  words_B1 = (place_BT >= 0).sum(1, keepdims=True)
  second_B1 = second_BT.sum(1, keepdims=True)
  swapped_BT = np.where(second_BT, place_BT - (words_B1 - second_B1), place_BT + second_B1)
  swapped_BT = np.where(place_BT >= 0, swapped_BT, -1)
  never_BT = _never(token_BT)
  return [Reading(1 / 2, place_BT, never_BT), Reading(1 / 2, swapped_BT, never_BT)]


def translations(token_BT: np.ndarray, batch: Batch) -> list[Reading]:
  """The two sides of a row say the same, word for word."""
  place_BT = _running(token_BT)
  second_BT = batch['language_BT'] != batch['language_BT'][:, :1]
  side_B1 = ((place_BT >= 0) & ~second_BT).sum(1, keepdims=True)
  place_BT = np.where((place_BT >= 0) & second_BT, place_BT - side_B1, place_BT)
  return [Reading(1.0, place_BT, _never(token_BT))]


def dialogues(token_BT: np.ndarray, batch: Batch, fake: float = 0.5) -> list[Reading]:
  """All turns follow each other, or one but the first is another text, in place of one unknown."""
  del batch
  place_BT, turn_BT = _running(token_BT), np.cumsum(token_BT == SPECIAL.index('[SEP]'), 1)
  words = token_BT.shape[1]
  restart_BR = np.zeros((len(token_BT), 2 * words), bool)
  readings = [Reading(1 - fake, place_BT, restart_BR.copy())]
  restart_BR[:, words] = True
  for turn in range(1, TURNS):
    mine_BT = (turn_BT == turn) & (place_BT >= 0)
    moved_BT = words + place_BT - np.where(mine_BT, place_BT, words).min(1, keepdims=True)
    faked_BT = np.where(mine_BT, moved_BT, place_BT)
    readings.append(Reading(fake / (TURNS - 1), faked_BT, restart_BR))
  return readings


def _running(token_BT: np.ndarray) -> np.ndarray:
  """The number of each word in its row, -1 of special tokens."""
  word_BT = token_BT >= len(SPECIAL)
  return np.where(word_BT, np.cumsum(word_BT, 1) - 1, -1)


def _second(token_BT: np.ndarray, batch: Batch) -> np.ndarray:
  return (batch['type_BT'] == 1) & (token_BT >= len(SPECIAL))


def _never(token_BT: np.ndarray) -> np.ndarray:
  return np.zeros(token_BT.shape, bool)
