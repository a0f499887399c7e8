"""XLM's masking: each token by a coin of its own.

facebookresearch/XLM, trainer.py:mask_out, with its sample_alpha of 0. Every token but the first of
its example is chosen with probability mask.rate, </s> in the middle included. Of the chosen tokens
mask_share show [MASK], random_share a random id, the others stay. A row has mask.max_targets slots,
or mean and five standard deviations of the coins; what exceeds them is dropped and counted. In half
precision the original also drops the earliest targets of a batch until their number is a multiple
of 8, for its matrix products; here shapes are fixed, so none are.
"""

import math

import numpy as np

from bertjax import counter_rng
from bertjax.data_contracts import Masking
from bertjax.examples import targets
from bertjax.examples.layout import Rows

_PICK = targets.FREE


def slots(options: targets.MaskOptions, length: int, unit: float = 1) -> int:
  """Returns P: max_targets, or mean and 5 deviations of `length` coins, which choose units of so
  many tokens; 67 of 256 at .15."""
  rate = options.rate
  most = math.ceil(rate * length + 5 * math.sqrt(unit * rate * (1 - rate) * length))
  return options.max_targets or min(most, length)


def corrupt(rows: Rows, options: targets.MaskOptions, store) -> dict[str, np.ndarray]:
  """Masks a batch; see `Masking.corrupt`."""
  limit = slots(options, rows.shape[1])
  every_n = np.arange(len(rows.token_n))
  turn_n = counter_rng.uniform(targets.at_tokens(rows, _PICK, every_n))
  index_n = every_n[(turn_n < options.rate) & (rows.position_n > 0)]
  kept_n, dropped_E = targets.within(rows, limit, index_n, turn_n[index_n])
  return targets.decided(rows, options, limit, store, index_n[kept_n], dropped_E)


MASKING = Masking(targets.MaskOptions, ('pad', 'cls', 'sep', 'mask'), targets.check, corrupt)
