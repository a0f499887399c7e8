"""Rows of the word tables, moved between models of different vocabularies.

A piece that the other vocabulary lacks begins as the mean of its rows, as in ULMFiT (fastai 0.7,
courses/dl2/imdb_scripts/finetune_lm.py), whose words are moved by their spelling.
"""

import numpy as np

from bertjax.errors import UserError
from bertjax.sources.subtrees import Rows
from bertjax.vocab.vocabulary import Vocabulary


def same_ids(one: Vocabulary, other: Vocabulary) -> bool:
  """Returns whether the ids of two vocabularies mean the same pieces; the files may differ."""
  return one.sha256 == other.sha256 or list(one.pieces) == list(other.pieces)


def moved(
  name: str, theirs: Vocabulary | None, ours: Vocabulary | None, remap: bool, key: str
) -> tuple[Rows | None, list[str]]:
  """Returns the rows that move and lines for people; rows None: all stay, or a vocabulary is not
  known. `key` of the config names the model. UserError: the vocabularies differ, and without
  `remap` rows must not move, or have no piece in common."""
  if theirs is None or ours is None:
    return None, [f'{name} comes without a vocabulary: that its ids are ours is not checked']
  if same_ids(theirs, ours):
    return None, []
  if not remap:
    remedy = ', or give --remap_vocab, which moves the rows of the pieces that both have'
    raise UserError(f'{refusal(name, theirs.sha256, ours, key)}{remedy}')
  there = {piece: i for i, piece in enumerate(theirs.pieces)}
  shared = {i: there[piece] for i, piece in enumerate(ours.pieces) if piece in there}
  if not shared.keys() - set(ours.special.values()):
    raise UserError(
      f'{key}: {name} knows none of the {ours.size:,} pieces of this vocabulary, so none of its '
      'rows can move: take its vocabulary (config.data.vocab), or one that is cut alike'
    )
  for role, mine in ours.special.items():  # [CLS] is <s>, whatever it is called
    other = theirs.special.get(role)
    if mine is not None and other is not None:
      shared[mine] = other
  here = np.array(sorted(shared), np.int64)
  there = np.array([shared[i] for i in here], np.int64)
  rows = Rows(here, there, np.setdiff1d(np.arange(ours.size), here), theirs.size)
  said = f'{len(shared):,} of {ours.size:,} pieces are in the vocabulary of {name}'
  return rows, [f'{said}; the others begin as the mean of its rows']


def refusal(name: str, theirs: str, ours: Vocabulary, key: str) -> str:
  """Returns the error text for a model of another vocabulary, whose sha256 is `theirs`."""
  return (
    f'{key}: {name} was trained with another vocabulary (sha256 {theirs[:12]}) than this run '
    f'({ours.size} ids, {ours.sha256[:12]}), and its ids mean other pieces: take its '
    'vocabulary (config.data.vocab)'
  )
