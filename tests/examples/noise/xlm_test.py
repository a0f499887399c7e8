"""XLM's masks: coins and slots."""

import math

import numpy as np
from masking import corrupted
from mutation import mutation
from toy_store import random_store
from toy_store import xlm as recipe

SEP = 3


def near(count, total, share):
  assert abs(count - total * share) < 4.5 * math.sqrt(total * share * (1 - share))


@mutation('rows.position_n > 0', 'rows.position_n >= 0', file='bertjax/examples/noise/xlm.py')
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
