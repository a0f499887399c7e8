"""Packing: capacity, completeness, best fit, isolation in the batch."""

import numpy as np
import pytest
from mutation import mutation
from toy_store import WHOLE_DOCUMENTS, random_store, recipe, roberta

from bertjax.examples import examples as examples_lib
from bertjax.examples import packing


def rows_of(length_E, capacity, most):
  pieces = list(packing.pack(length_E, capacity, most))
  example = np.concatenate([piece[0] for piece in pieces])
  count = np.concatenate([piece[1] for piece in pieces])
  return np.split(example, np.cumsum(count)[:-1])


def one_by_one(lengths, capacity, most):
  """Best fit, longest first, without the histogram: room left and examples of every row."""
  rows = []
  for length in sorted(lengths, reverse=True):
    fitting = [row for row in rows if row[0] >= length and row[1] < most]
    row = min(fitting, key=lambda row: row[0], default=None)
    if row is None:
      row = [capacity, 0]
      rows.append(row)
    row[0] -= length
    row[1] += 1
  return rows


@pytest.mark.parametrize('most', [1, 2, 64])
@pytest.mark.parametrize('seed', range(4))
@mutation('length + (fitting & -fitting).bit_length', 'length + fitting.bit_length', case='1-64')
def test_equals_best_fit_one_by_one(seed, most):
  draw = np.random.default_rng(seed)
  length_E = draw.integers(1, [20, 65, 33, 65][seed], 300).astype(np.int32)
  rows = rows_of(length_E, 64, most)
  assert sorted(np.concatenate(rows).tolist()) == list(range(300))
  assert max(map(len, rows)) <= most
  theirs = one_by_one(length_E.tolist(), 64, most)
  assert sorted(64 - length_E[row].sum() for row in rows) == sorted(room for room, _ in theirs)


@mutation("np.argsort(window, kind='stable') + base", "np.argsort(window, kind='stable')")
def test_windows_bound_the_work_and_lose_nothing(monkeypatch):
  length_E = np.random.default_rng(0).integers(1, 65, 1000).astype(np.int32)
  monkeypatch.setattr(packing, 'WINDOW', 100)
  rows = rows_of(length_E, 64, 8)
  assert sorted(np.concatenate(rows).tolist()) == list(range(1000))
  assert all(length_E[row].sum() <= 64 and len({i // 100 for i in row}) == 1 for row in rows)


@pytest.mark.parametrize('config', [recipe(pack=8), roberta(WHOLE_DOCUMENTS, pack=8)])
def test_packed_rows_are_the_examples_side_by_side(config):
  store = random_store(80, sentences=4)
  packed = examples_lib.examples_in_memory(store, config, 128, 5)
  config = config.copy_and_resolve_references()
  config.pack = 1
  single = examples_lib.examples_in_memory(store, config, 128, 5)
  assert packed.examples == single.examples and packed.rows < 0.8 * single.rows
  batch = packed.batch(np.arange(packed.rows), shuffle=False)
  alone = single.batch(np.arange(single.rows), shuffle=False)
  seen = []
  for row in range(packed.rows):
    for slot in range(int(batch['example_BT'][row].max())):
      at = np.flatnonzero(batch['example_BT'][row] == slot + 1)
      example = int(packed.row_example[packed.row_start[row] + slot])
      size = len(at)
      assert (np.diff(at) == 1).all() and batch['first_BG'][row, slot] == at[0]
      assert (alone['example_BT'][example] > 0).sum() == size
      for name in ('position_BT', 'type_BT'):
        np.testing.assert_array_equal(batch[name][row, at], alone[name][example, :size])
      assert batch['example_weight_BG'][row, slot] == 1
      if config.plan.name == 'pairs':
        assert batch['next_BG'][row, slot] == alone['next_BG'][example, 0]
      seen.append(example)
  assert sorted(seen) == list(range(single.examples))
  assert batch['example_weight_BG'].sum() == single.examples


def test_masks_of_an_example_are_the_same_packed_or_alone():
  """Unless its row ran out of slots: keys follow the example, not the row."""
  store, config = random_store(80, sentences=4), recipe(pack=8)
  packed = examples_lib.examples_in_memory(store, config, 128, 5)
  alone = examples_lib.examples_in_memory(store, recipe(), 128, 5)
  batch = packed.batch(np.arange(packed.rows), shuffle=False)
  whole = np.flatnonzero(batch['dropped_B'] == 0)
  assert len(whole) > packed.rows / 2
  for row in whole:
    first, last = packed.row_start[row], packed.row_start[row + 1]
    each = alone.batch(packed.row_example[first:last], shuffle=False)
    expected = each['token_BT'][each['example_BT'] > 0]
    np.testing.assert_array_equal(batch['token_BT'][row, : len(expected)], expected)
