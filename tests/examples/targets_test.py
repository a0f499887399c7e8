"""What all corruptions share: the schema, special tokens, purity, slots of a row, budgets."""

import numpy as np
import pytest
from masking import ALL, at_targets, corrupted, count_of, masked
from toy_store import MASK, SPECIAL, random_store, recipe, with_units

from bertjax.examples import examples as examples_lib
from bertjax.examples import targets

CLS, SEP, PAD = SPECIAL['cls'], SPECIAL['sep'], SPECIAL['pad']


@pytest.mark.parametrize('name', ALL)
def test_schema_and_places(name):
  config = ALL[name]
  batch, original_BT, _ = masked(config)
  used_BP = batch['weight_BP'] > 0
  assert set(np.unique(batch['weight_BP'])) <= {0.0, 1.0}
  assert (np.diff(used_BP.astype(int), axis=1) <= 0).all()  # used slots come first
  # ELECTRA draws with replacement: a position may have two slots.
  least = 0 if config.mask.get('replacement') else 1
  ascending = np.diff(batch['target_pos_BP'], axis=1) >= least
  assert ascending[used_BP[:, 1:]].all()
  for key in ('target_pos_BP', 'target_BP', 'masked_BP'):
    assert (batch[key][~used_BP] == 0).all()
  np.testing.assert_array_equal(at_targets(batch, original_BT), batch['target_BP'][used_BP])
  shown_mask = at_targets(batch, batch['token_BT']) == MASK
  assert (shown_mask | (batch['masked_BP'][used_BP] == 0)).all()
  changed_BT = batch['token_BT'] != original_BT
  target_BT = np.zeros(original_BT.shape, bool)
  np.put_along_axis(target_BT, batch['target_pos_BP'], True, 1)
  target_BT[:, 0] |= changed_BT[:, 0]  # unused slots point at column 0
  assert not (changed_BT & ~target_BT).any()
  real_BT = batch['example_BT'] > 0
  assert (batch['token_BT'][~real_BT] == PAD).all() and (original_BT[~real_BT] == PAD).all()
  assert at_targets(batch, real_BT.astype(int)).all()
  dtypes = {k: v.dtype for k, v in batch.items()}
  floats = {'weight_BP', 'masked_BP', 'pair_weight_BP', 'example_weight_BG'}
  assert all(dtypes[k] == (np.float32 if k in floats else np.int32) for k in dtypes)


@pytest.mark.parametrize('name', [name for name in ALL if not name.startswith('roberta')])
def test_special_tokens_are_never_targets(name):
  batch, *_ = masked(ALL[name])
  assert not np.isin(batch['target_BP'][batch['weight_BP'] > 0], [CLS, SEP, PAD]).any()


@pytest.mark.parametrize('name', ALL)
def test_masks_do_not_depend_on_the_batch_around_them(name):
  config, store = ALL[name], with_units(random_store(60))
  examples = examples_lib.examples_in_memory(store, config, 64, 1)
  whole = examples.batch(np.arange(20), shuffle=True)
  for row in (0, 7, 19):
    alone = examples.batch(np.array([row]), shuffle=True)
    assert all((alone[key][0] == whole[key][row]).all() for key in whole)


def test_a_rows_slots_are_shared_in_proportion_and_the_rest_is_counted():
  """Eight examples of 64 ask for 80 targets; a row of 512 has 77 slots."""
  counts = count_of(recipe(), [64] * 8)[0]
  assert sum(counts) == 77 and set(counts) == {9, 10}
  batch = corrupted(recipe(), random_store(3), [64] * 8, [0] * 8)
  assert batch['dropped_B'].tolist() == [3]
  row_E = np.array([0, 0, 1, 1, 1, 3])
  asked_E = np.array([3, 4, 40, 20, 40, 100])
  assert targets.share(asked_E, row_E, 50).tolist() == [3, 4, 20, 10, 20, 50]


def sequential_words(order, sizes, limit):
  """create_pretraining_data.py: groups in shuffled order, one that would overflow is skipped."""
  taken = []
  for group in order:
    if sum(sizes[g] for g in taken) + sizes[group] <= limit:
      taken.append(group)
  return taken


def test_words_are_taken_as_the_sequential_algorithm_takes_them():
  draw = np.random.default_rng(0)
  groups, examples = draw.integers(1, 40, 30), 30
  example_n = np.repeat(np.arange(examples), groups)
  size_n = draw.integers(1, 6, len(example_n))
  room_E = draw.integers(0, 30, examples)
  ours = sorted(targets.fit(example_n, size_n, room_E).tolist())
  theirs = []
  for e in range(examples):
    at = np.flatnonzero(example_n == e).tolist()
    theirs += sequential_words(at, size_n, room_E[e])
  assert ours == sorted(theirs)
