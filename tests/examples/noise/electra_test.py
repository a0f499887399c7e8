"""ELECTRA's masks: slots, draws with replacement, what the input shows."""

import numpy as np
import pytest
from masking import corrupted, mask_options
from mutation import mutation
from toy_store import MASK, random_store
from toy_store import electra as recipe

from bertjax.examples.noise import electra


@mutation('int((options.rate + 0.005) * length)', 'int(options.rate * length + 1)')
def test_slots():
  """19 of 128, 79 of 512, and 130 of 512 at the rate of the large model."""
  assert [electra.slots(mask_options(recipe()), length) for length in (128, 512)] == [19, 79]
  assert electra.slots(mask_options(recipe(mask__rate=0.25)), 512) == 130


@pytest.mark.parametrize(
  'length,slots,distinct,shown',
  # One [CLS] and one [SEP]. Of 512 tokens the rate .15 asks for 77; 79 would be all slots.
  [(128, 19, 17.70, 0.1188), (512, 77, 71.53, 0.12006), (512, 79, 73.25, 0.1230)],
)
@mutation('masked_n = hidden[index_n]', 'masked_n = u_n < options.mask_share')
def test_distinct_positions_and_masks_of_full_rows(length, slots, distinct, shown):
  rows, exact = 3000, length - 2
  assert exact * (1 - (1 - 1 / exact) ** slots) == pytest.approx(distinct, abs=0.006)
  assert exact / length * (1 - (1 - 0.85 / exact) ** slots) == pytest.approx(shown, abs=6e-5)
  config = recipe(mask__rate=0.15 if slots != 79 else 0.1543, mask__max_targets=79)
  batch = corrupted(config, random_store(3), [length] * rows, capacity=length)
  used_BP = batch['weight_BP'] > 0
  assert (used_BP.sum(1) == slots).all()
  new_BP = np.diff(batch['target_pos_BP'], axis=1, prepend=-1) > 0
  count_B = (new_BP & used_BP).sum(1)
  assert abs(count_B.mean() - distinct) < 4 * count_B.std() / np.sqrt(rows)
  share_B = (batch['token_BT'] == MASK).mean(1)
  assert abs(share_B.mean() - shown) < 4 * share_B.std() / np.sqrt(rows)


def test_slots_of_one_position_agree_and_the_rest_keeps_its_token():
  batch = corrupted(recipe(), random_store(3), [128] * 500, capacity=128)
  used_BP, pos_BP = batch['weight_BP'] > 0, batch['target_pos_BP']
  shown_BP = np.take_along_axis(batch['token_BT'], pos_BP, 1)
  np.testing.assert_array_equal((shown_BP == MASK)[used_BP], batch['masked_BP'][used_BP] > 0)
  kept_BP = used_BP & (batch['masked_BP'] == 0)
  np.testing.assert_array_equal(shown_BP[kept_BP], batch['target_BP'][kept_BP])
  twice = (np.diff(pos_BP, axis=1) == 0) & used_BP[:, 1:]
  assert twice.any()
  # A position of two slots shows its token only if both say so.
  pair = twice & ~np.pad(twice, ((0, 0), (1, 0)))[:, :-1] & ~np.pad(twice, ((0, 0), (0, 1)))[:, 1:]
  share = batch['masked_BP'][:, 1:][pair].mean()
  assert abs(share - (1 - 0.15**2)) < 4 * np.sqrt(0.0225 * 0.9775 / pair.sum())
