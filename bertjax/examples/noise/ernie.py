"""ERNIE 1.0's masking: words, phrases and entities as the store's units have them, or characters.

PaddlePaddle/ERNIE 1.0, batching.py:mask and pretraining.py. A coin decides for mask.block rows that
are read one after the other, as the original's does for a file: with probability mask.word_prob
they are masked by units, otherwise by characters. [CLS] and [SEP] are never chosen. Every token
draws one p; at rate .15, mask_share .8 and random_share .1:

  characters  p > .15: not chosen. p > .03: [MASK]. p > .015: a random id. Else it stays.
  units       A unit is chosen where the p of its first token is at most .15, and that token is
              treated as above. Each later one draws for itself: p > .2: [MASK]. p > .1: a random
              id. Else it stays. All tokens of a chosen unit are targets.

Random ids are uniform over all but mask.never_drawn ([PAD]). The number of targets
is what the draws make it. A row has mask.max_targets slots, or mean and five standard deviations,
taken of units of two tokens; what exceeds them is dropped and counted.
"""

import dataclasses

import numpy as np

from bertjax import counter_rng
from bertjax.data_contracts import Masking
from bertjax.examples import layout, targets
from bertjax.examples.layout import Rows
from bertjax.examples.noise import xlm
from bertjax.field_types import Count, Share

_PICK = targets.FREE
_UNIT = 2  # sum of squared lengths over sum of lengths; 1.6 in the records of the original


@dataclasses.dataclass(frozen=True)
class Options(targets.MaskOptions):
  """Fields of `config.data.mask` besides those of `MaskOptions`.

  Attributes:
    word_prob: chance of a block of rows to be masked by units; the original has one for every file.
    block: rows that share this coin; the original's is a file.
  """

  word_prob: Share = 0.5
  block: Count = 64


def slots(options: Options, length: int) -> int:
  """Returns P: max_targets, or mean and 5 deviations of the targets of `length` tokens."""
  return xlm.slots(options, length, _UNIT)


def corrupt(rows: Rows, options: Options, store) -> dict[str, np.ndarray]:
  """Masks a batch; see `Masking.corrupt`."""
  limit = slots(options, rows.shape[1])
  candidate_c = targets.not_special(rows, store)
  p_c = counter_rng.uniform(targets.at_tokens(rows, _PICK, candidate_c))
  # Whole blocks of rows are masked by units, or by characters.
  coin = counter_rng.root(rows.seed, 'words or characters')
  key_B = counter_rng.fold(coin, rows.number_B // options.block)
  by_unit_B = counter_rng.uniform(counter_rng.fold(key_B, 0)) < options.word_prob
  lead_c = np.arange(len(candidate_c))
  if by_unit_B.any():
    begins_c = layout.units(rows, store)[candidate_c] > 0
    # Behind a special token, and in a row that begins inside a unit.
    begins_c |= layout.begins(candidate_c, rows.example_n[candidate_c])
    begins_c |= ~by_unit_B[rows.row_E][rows.example_n[candidate_c]]
    lead_c = np.maximum.accumulate(np.where(begins_c, lead_c, 0))

  at_c = np.flatnonzero(p_c[lead_c] <= options.rate)
  kept_n, dropped_E = targets.within(rows, limit, candidate_c[at_c], p_c[lead_c[at_c]])
  at_c = at_c[kept_n]
  index_n = candidate_c[at_c]

  # First tokens reuse the p that chose them, which is uniform below the rate.
  u_n = p_c[at_c] / np.where(lead_c[at_c] == at_c, options.rate, 1.0)
  masked_n = u_n > 1 - options.mask_share
  random_n = ~masked_n & (u_n > 1 - options.mask_share - options.random_share)
  random_id_n = targets.uniform_ids(rows, options.never_drawn, store, index_n)
  shown_n = np.where(random_n, random_id_n, rows.token_n[index_n])
  shown_n = np.where(masked_n, store.special['mask'], shown_n)
  return targets.emit(rows, limit, store, index_n, (shown_n, masked_n), dropped_E)


MASKING = Masking(
  Options,
  ('pad', 'cls', 'sep', 'mask'),
  targets.check,
  corrupt,
  units=lambda options: options.word_prob > 0,
)
