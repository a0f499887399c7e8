"""XLM's masks: coins and slots."""

import math

import numpy as np
from masking import at_targets, corrupted, mask_options, masked
from mutation import mutation
from toy_store import MASK, VOCABULARY, random_store
from toy_store import xlm as recipe

from bertjax.examples.noise import xlm

SEP = 3


def near(count, total, share):
  assert abs(count - total * share) < 4.5 * math.sqrt(total * share * (1 - share))


@mutation(
  'XLM masking: the first token has a coin',
  'bertjax/examples/noise/xlm.py',
  'rows.position_n > 0',
  'rows.position_n >= 0',
)
def test_every_token_but_the_first_has_its_coin():
  batch = corrupted(recipe(), random_store(3), [64] * 4000, capacity=64)
  used_BP = batch['weight_BP'] > 0
  hit_T = np.bincount(batch['target_pos_BP'][used_BP], minlength=64)
  assert hit_T[0] == 0
  for hits in (hit_T[1], hit_T[30], hit_T[63], hit_T[1:].sum()):
    near(hits, 4000 * (63 if hits > 4000 else 1), 0.15)
  assert batch['dropped_B'].sum() == 0
  assert (batch['target_BP'][used_BP] == SEP).any()
  near((batch['target_BP'][used_BP] == SEP).sum(), 4000, 0.15)  # each row's last </s>


def test_what_the_input_shows():
  batch, original_BT, _ = masked(recipe(), rows=2000, store=random_store(2500))
  shown = at_targets(batch, batch['token_BT'])
  truth, total = at_targets(batch, original_BT), int((batch['weight_BP'] > 0).sum())
  near((shown == MASK).sum(), total, 0.8 + 0.1 / VOCABULARY)
  near(((shown != MASK) & (shown != truth)).sum(), total, 0.1 * (1 - 2 / VOCABULARY))
  random = shown[(shown != MASK) & (shown != truth)]
  assert random.min() == 0 and random.max() == VOCABULARY - 1  # of all ids, special ones too
  hidden = np.zeros_like(original_BT, bool)
  row_n, slot_n = np.nonzero(batch['weight_BP'])
  hidden[row_n, batch['target_pos_BP'][row_n, slot_n]] = True
  np.testing.assert_array_equal(batch['token_BT'][~hidden], original_BT[~hidden])


def test_slots_take_mean_and_five_deviations():
  assert [xlm.slots(mask_options(recipe()), length) for length in (256, 128, 4)] == [67, 40, 4]
  assert xlm.slots(mask_options(recipe(mask__max_targets=9)), 256) == 9


def test_what_has_no_slot_is_dropped_by_lot_and_counted():
  config = recipe(mask__max_targets=7)
  batch = corrupted(config, random_store(3), [64] * 3000, capacity=64)
  used = int((batch['weight_BP'] > 0).sum())
  near(used + batch['dropped_B'].sum(), 3000 * 63, 0.15)
  full_B = batch['dropped_B'] > 0
  assert (batch['weight_BP'][full_B] > 0).all() and full_B.any()
  # The early ones are not preferred.
  pos_n = batch['target_pos_BP'][full_B].ravel()
  assert abs(pos_n.mean() - 32) < 4 * 18.2 / math.sqrt(len(pos_n))
