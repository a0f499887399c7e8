"""Causal targets: the next token of the same example."""

import numpy as np
from masking import placed
from mutation import mutation
from toy_store import SPECIAL, random_store

from bertjax.examples.noise import causal
from bertjax.options import NoOptions


def corrupted(lengths, row_E=None, capacity=16):
  return causal.corrupt(placed(lengths, row_E, capacity), NoOptions(), random_store(3))


@mutation('(example_n[1:] == example_n[:-1], False)', '(example_n[1:] >= example_n[:-1], False)')
def test_every_target_is_the_next_token_of_its_example():
  batch = corrupted([5, 7, 3, 16], row_E=[0, 0, 1, 2])
  token_BT = batch['token_BT']
  for row, ends in enumerate([[5, 12], [3], [16]]):
    used = batch['weight_BP'][row] > 0
    expected = [t for t in range(ends[-1]) if t + 1 not in ends]
    assert batch['target_pos_BP'][row][used].tolist() == expected
    np.testing.assert_array_equal(
      batch['target_BP'][row][used], token_BT[row][np.array(expected) + 1]
    )
  assert not (batch['target_BP'] * (1 - batch['weight_BP'])).any()
  assert not (batch['target_pos_BP'] * (1 - batch['weight_BP'])).any()
  special_BP = np.isin(batch['target_BP'], (SPECIAL['cls'], SPECIAL['sep']))
  np.testing.assert_array_equal(batch['masked_BP'], batch['weight_BP'] * ~special_BP)
  assert batch['weight_BP'].shape == token_BT.shape and not batch['dropped_B'].any()


@mutation("special['pad'] or 0", "special['pad']", file='bertjax/examples/noise/causal.py')
def test_a_vocabulary_needs_no_special_token():
  store = random_store(3)
  store.special = dict.fromkeys(SPECIAL)  # GPT-2's has no padding
  rows = placed([9, 4], capacity=16)
  batch = causal.corrupt(rows, NoOptions(), store)
  np.testing.assert_array_equal(batch['token_BT'][batch['token_BT'] > 0], rows.token_n)
  assert not causal.MASKING.special
