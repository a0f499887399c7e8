"""DeBERTa-v3's masks: one token of each six, counted from the left."""

import numpy as np
import pytest
from masking import corrupted
from mutation import mutation
from toy_store import MASK, SPECIAL, random_store, recipe

from bertjax.examples import recipes

RECIPE = recipe(recipes.ELECTRA_PLAN, recipes.DEBERTA_MASK)


def hidden(batch):
  """Columns that are predicted, row by row."""
  return [
    pos[used > 0].tolist()
    for pos, used in zip(batch['target_pos_BP'], batch['weight_BP'], strict=True)
  ]


@pytest.mark.parametrize('length, targets', [(512, 77), (128, 19), (9, 1)])
@mutation('place_n = np.arange(len(candidate_n)) - starts', 'place_n = starts')
@mutation('rank_n <= room_E', 'rank_n < room_E')
@mutation("('pad', 'unk', 'cls', 'sep', 'mask'), store", "('pad', 'unk', 'mask'), store")
def test_one_of_each_six_is_hidden_until_there_are_enough(length, targets):
  rows = 400
  batch = corrupted(RECIPE, random_store(3), [length] * rows, capacity=length)
  found, places = hidden(batch), [[] for _ in range(6)]
  for row, token_T in zip(found, batch['token_BT'], strict=True):
    assert (
      len(row) == targets and (token_T[row] == MASK).all() and (token_T == MASK).sum() == targets
    )
    # One [SEP] stands between two segments, and no window counts it.
    text = [at for at, token in enumerate(token_T) if token not in (SPECIAL['cls'], SPECIAL['sep'])]
    at_n = np.searchsorted(text, row)
    assert (at_n // 6 == np.arange(targets)).all()
    for at in at_n:
      places[at % 6].append(at)
  share = np.array([len(p) for p in places]) / (rows * targets)
  if length > 9:
    assert abs(share - 1 / 6).max() < 4 * np.sqrt(5 / 36 / (rows * targets))
  assert (batch['masked_BP'] == batch['weight_BP']).all()


@mutation('rank_n <= room_E[rows.example_n[index_n]]', 'rank_n <= asked_E[rows.example_n[index_n]]')
def test_examples_of_a_row_share_its_slots_and_what_is_dropped_is_counted():
  config = recipe(recipes.ELECTRA_PLAN, recipes.DEBERTA_MASK, mask__max_targets=10)
  batch = corrupted(config, random_store(3), [64, 64] * 3, [0, 0, 1, 1, 2, 2], 128)
  assert (batch['weight_BP'].sum(1) == 10).all() and (batch['dropped_B'] == 10).all()
