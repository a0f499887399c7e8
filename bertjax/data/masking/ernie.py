"""ERNIE 1.0's masking: words, phrases and entities as the store's units have them, or characters.

PaddlePaddle/ERNIE 1.0, batching.py:mask and pretraining.py. A coin decides for mask.block rows that
are read one after the other, as the original's does for a file: with probability mask.word_prob
they are masked by units, otherwise by characters. [CLS] and [SEP] are never chosen. Every token
draws one p; at rate .15, mask_share .8 and random_share .1:

  characters  p > .15: not chosen. p > .03: [MASK]. p > .015: a random id. Else it stays.
  units       A unit is chosen where the p of its first token is at most .15, and that token is
              treated as above. Each later one draws for itself: p > .2: [MASK]. p > .1: a random
              id. Else it stays. All tokens of a chosen unit are targets.

Random ids are uniform over those from mask.special_ids (1: all but [PAD]) up. The number of targets
is what the draws make it. A row has mask.max_targets slots, or mean and five standard deviations,
taken of units of two tokens; what exceeds them is dropped and counted.
"""

import math

import numpy as np

from bertjax.data import counter_rng, layout, targets
from bertjax.data.layout import Rows
from bertjax.data.masking.xlm import lowest
from bertjax.errors import UserError

SPECIAL = ('cls', 'sep', 'mask')
_PICK = targets.FREE
_UNIT = 2  # sum of squared lengths over sum of lengths; 1.6 in the records of the original


def check(recipe, store, length: int) -> None:
  """Checks `recipe.mask`.

  Raises:
    UserError: a word_prob outside [0, 1], a block without rows, a store without units where they
      are needed, or as `targets.check`.
  """
  targets.check(recipe, store, length)
  mask = recipe.mask
  if not 0 <= mask.word_prob <= 1 or mask.block < 1:
    raise UserError(
      'expected config.data.mask.word_prob from 0 to 1 and mask.block >= 1 rows, got '
      f'{mask.word_prob} and {mask.block}'
    )
  if mask.word_prob:
    store.check_units()


def slots(recipe, length: int) -> int:
  """Returns P: mask.max_targets, or mean and 5 deviations of the targets of `length` tokens."""
  rate = recipe.mask.rate
  most = math.ceil(rate * length + 5 * math.sqrt(_UNIT * rate * (1 - rate) * length))
  return recipe.mask.max_targets or min(most, length)


def corrupt(placed: Rows, recipe, store) -> dict[str, np.ndarray]:
  """Masks a batch.

  Args:
    placed: the batch.
    recipe: `config.data`.
    store: for the special ids, the vocabulary size and the units.

  Returns:
    As `targets.emit`.
  """
  mask, limit, text = recipe.mask, slots(recipe, placed.shape[1]), placed.text
  candidate_c = targets.not_special(placed, store)
  p_c = counter_rng.uniform(targets.at_tokens(placed, _PICK, candidate_c))
  by_unit_B = _coins(placed, mask)
  lead_c = np.arange(len(candidate_c))
  if by_unit_B.any():
    begins_c = layout.units(text, store)[candidate_c] > 0
    begins_c[:1] = True
    begins_c[1:] |= np.diff(candidate_c) > 1  # behind a special token
    begins_c |= ~by_unit_B[placed.row_E][placed.example_n[candidate_c]]
    lead_c = np.maximum.accumulate(np.where(begins_c, lead_c, 0))

  at_c = np.flatnonzero(p_c[lead_c] <= mask.rate)
  row_n = placed.row_E[placed.example_n[candidate_c[at_c]]]
  kept_n = lowest(p_c[lead_c[at_c]], row_n, np.full(placed.shape[0], limit))
  examples = len(placed.row_E)
  dropped_E = targets.count(placed.example_n[candidate_c[at_c]], 1, examples)
  at_c = at_c[kept_n]
  index_n = candidate_c[at_c]
  dropped_E -= targets.count(placed.example_n[index_n], 1, examples)

  # First tokens reuse the p that chose them, which is uniform below the rate.
  u_n = p_c[at_c] / np.where(lead_c[at_c] == at_c, mask.rate, 1.0)
  masked_n = u_n > 1 - mask.mask_share
  random_n = ~masked_n & (u_n > 1 - mask.mask_share - mask.random_share)
  random_id_n = targets.uniform_ids(placed, recipe, store, index_n)
  shown_n = np.where(random_n, random_id_n, text.token_n[index_n])
  shown_n = np.where(masked_n, store.special['mask'], shown_n)
  return targets.emit(placed, limit, store, index_n, (shown_n, masked_n), dropped_E)


def _coins(placed: Rows, mask) -> np.ndarray:
  """Returns bool [B], whether a row is masked by units."""
  key_B = counter_rng.fold(
    counter_rng.root(placed.seed, 'words or characters'), placed.number_B // mask.block
  )
  return counter_rng.uniform(counter_rng.fold(key_B, 0)) < mask.word_prob
