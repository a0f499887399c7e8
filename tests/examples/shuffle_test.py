"""Rows language by language: shares, blocks, epochs, and that a row follows from its number."""

import numpy as np
import pytest
from mutation import mutation
from toy_store import random_store, roberta, spoken

from bertjax.examples import examples as examples_lib
from bertjax.examples import shuffle

# Rows of an English that is large, three middling ones and an Icelandic.
GROUP_N = np.random.default_rng(0).permutation(np.repeat(np.arange(5), [4000, 900, 700, 300, 20]))


def rows_at(first, count, alpha=0.7, block=1, seed=0, group_n=GROUP_N):
  plan = shuffle.schedule(group_n, alpha, block)
  return shuffle.by_language(np.arange(first, first + count), plan, seed)


@pytest.mark.parametrize('alpha', [0.0, 0.3, 0.7, 1.0])
@mutation('np.maximum(rows_g, 1.0) ** alpha', 'np.maximum(rows_g, 1.0)')
def test_shares_follow_the_power_of_the_size(alpha):
  rows_g = np.array([2_500_000, 30_000, 1_000])
  weight_g = rows_g**alpha
  blocks_g = shuffle.shares(rows_g, alpha)
  assert blocks_g.sum() == shuffle.WINDOW
  np.testing.assert_allclose(blocks_g, shuffle.WINDOW * weight_g / weight_g.sum(), atol=1)


@pytest.mark.parametrize('block', [1, 7])
def test_a_window_holds_every_share_and_a_block_one_language(block):
  _, row_n = rows_at(0, shuffle.WINDOW * block, block=block)
  group_nb = GROUP_N[row_n].reshape(-1, block)
  assert (group_nb == group_nb[:, :1]).all()
  expected = shuffle.shares(np.bincount(GROUP_N), 0.7)
  np.testing.assert_array_equal(np.bincount(group_nb[:, 0]), expected)
  # In no order: two blocks that follow each other agree as often as chance has it.
  same = (group_nb[1:, 0] == group_nb[:-1, 0]).mean()
  assert same == pytest.approx(((expected / expected.sum()) ** 2).sum(), abs=0.02)


@pytest.mark.parametrize('block', [1, 7])
@mutation('window_n * each_g[group_n] - plan', '0 * window_n - plan')
def test_a_language_reads_all_its_rows_before_it_repeats_one(block):
  epoch_n, row_n = rows_at(0, 3 * shuffle.WINDOW * block, block=block)
  for group in range(5):
    of_group = np.flatnonzero(GROUP_N == group)
    read_n, epochs = row_n[GROUP_N[row_n] == group], epoch_n[GROUP_N[row_n] == group]
    whole = int(epochs.max())
    assert whole >= 1
    for epoch in range(whole):
      np.testing.assert_array_equal(np.sort(read_n[epochs == epoch]), of_group)


@mutation('_permuted(key_g, epoch_n[mine_n]', '_permuted(key_g, 0 * epoch_n[mine_n]')
def test_every_epoch_of_a_language_has_other_neighbours():
  epoch_n, row_n = rows_at(0, shuffle.WINDOW * 7, block=7, group_n=np.zeros(700, np.int64))
  rows_of = lambda epoch: set(map(tuple, row_n[epoch_n == epoch].reshape(-1, 7).tolist()))
  assert len(rows_of(0)) == 100 and len(rows_of(0) & rows_of(1)) < 3


def test_a_row_follows_from_its_number_and_the_seed():
  """Across the border of a window, forwards or by itself."""
  whole = rows_at(0, 20_000)
  some_n = np.array([19_999, 3, 16_384, 16_383])
  part = shuffle.by_language(some_n, shuffle.schedule(GROUP_N, 0.7, 1), 0)
  for all_n, found_n in zip(whole, part, strict=True):
    np.testing.assert_array_equal(found_n, all_n[some_n])
  assert (rows_at(0, 200)[1] != rows_at(0, 200, seed=1)[1]).any()


def test_without_alpha_and_in_evaluation_rows_are_as_the_store_has_them():
  store = spoken(random_store(), languages=2)
  plain, sampled = (
    examples_lib.examples_in_memory(store, roberta(language_alpha=alpha), 64, 0)
    for alpha in (None, 0.0)
  )
  row_n = np.arange(plain.rows)
  targets = lambda examples, shuffle: examples.batch(row_n, shuffle)['target_BP']
  np.testing.assert_array_equal(targets(plain, False), targets(sampled, False))
  assert (targets(plain, True) != targets(sampled, True)).any()
