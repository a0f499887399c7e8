"""ELECTRA's masking: positions drawn with replacement, 85% shown as [MASK], the others kept.

google-research/electra, pretrain_helpers.py. A row of T tokens has int((rate + .005) * T) slots (or
mask.max_targets); an example takes round(rate * length) of them, at least 1. Each slot draws its
position by itself, uniformly from the tokens other than [CLS], [SEP] and [MASK]: 19 slots of a full
row of 128 hold 17.7 distinct positions. One drawn twice has two slots, which both count in the
generator's loss, and shows [MASK] if either says so: an input shows one thing at a position. So
does the generator's sample there: the original averages the ids of the samples, which we do not.
"""

import dataclasses

import numpy as np

from bertjax import counter_rng
from bertjax.data_contracts import Masking
from bertjax.errors import UserError
from bertjax.examples import targets
from bertjax.examples.layout import Rows, ragged, starts
from bertjax.field_types import Natural, PositiveShare, Share

_PICK, _SHOW = targets.FREE, targets.FREE + 1


@dataclasses.dataclass(frozen=True)
class Options:
  """Fields of `config.data.mask`.

  Attributes:
    rate: share of the tokens that are predicted.
    mask_share: of these, the share that shows [MASK]; the others stay.
    static: the same masks in every epoch.
    max_targets: slots per row; 0: what the rate asks for.
  """

  rate: PositiveShare
  mask_share: Share
  static: bool = False
  max_targets: Natural = 0


def _check(options: Options, store, length: int) -> None:
  targets.check_length(options, store, length)
  if slots(options, length) < 1:
    raise UserError(
      f'config.data.mask.rate={options.rate} leaves no slot in rows of {length}: raise the '
      'rate or set config.data.mask.max_targets'
    )


def slots(options: Options, length: int) -> int:
  """Returns P: max_targets, or int((rate + .005) * length) where it is 0; 79 of 512."""
  return options.max_targets or int((options.rate + 0.005) * length)


def corrupt(rows: Rows, options: Options, store) -> dict[str, np.ndarray]:
  """Masks a batch; see `Masking.corrupt`."""
  limit, examples = slots(options, rows.shape[1]), len(rows.row_E)
  candidate_n = targets.not_special(rows, store)
  candidate_n = candidate_n[rows.token_n[candidate_n] != store.special['mask']]
  units = targets.single(rows, candidate_n)
  candidates_E = targets.count(units.example_n, 1, examples)
  asked_E = targets.bert_count(rows, options.rate) * (candidates_E > 0)
  room_E = targets.share(asked_E, rows.row_E, limit)

  example_n, slot_n = ragged(room_E)
  pick_n = counter_rng.below(targets.bits(rows, _PICK, example_n, slot_n), candidates_E[example_n])
  index_n = np.sort(candidate_n[starts(candidates_E)[example_n] + pick_n])
  u_n = counter_rng.uniform(targets.bits(rows, _SHOW, example_n, slot_n))
  hidden = np.zeros(len(rows.token_n), bool)
  hidden[index_n[u_n < options.mask_share]] = True
  masked_n = hidden[index_n]
  shown_n = np.where(masked_n, store.special['mask'], rows.token_n[index_n])
  return targets.emit(rows, limit, store, index_n, (shown_n, masked_n), asked_E - room_E)


MASKING = Masking(Options, ('pad', 'cls', 'sep', 'mask'), _check, corrupt)
