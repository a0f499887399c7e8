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


def slots(options: targets.MaskOptions, length: int) -> int:
  """Returns P: max_targets, or mean and 5 deviations of `length` coins; 67 of 256 at .15."""
  rate = options.rate
  most = math.ceil(rate * length + 5 * math.sqrt(rate * (1 - rate) * length))
  return options.max_targets or min(most, length)


def corrupt(rows: Rows, options: targets.MaskOptions, store) -> dict[str, np.ndarray]:
  """Masks a batch.

  Args:
    rows: the batch.
    options: the rule.
    store: for the special ids and the vocabulary size.

  Returns:
    As `targets.emit`.
  """
  limit = slots(options, rows.shape[1])
  every_n = np.arange(len(rows.token_n))
  turn_n = counter_rng.uniform(targets.at_tokens(rows, _PICK, every_n))
  index_n = every_n[(turn_n < options.rate) & (rows.position_n > 0)]

  row_n = rows.row_E[rows.example_n[index_n]]
  kept_n = lowest(turn_n[index_n], row_n, np.full(rows.shape[0], limit))
  examples = len(rows.row_E)
  dropped_E = targets.count(rows.example_n[index_n], 1, examples)
  index_n = index_n[kept_n]
  dropped_E -= targets.count(rows.example_n[index_n], 1, examples)
  random_id_n = targets.uniform_ids(rows, options.never_drawn, store, index_n)
  shown = targets.show(rows, options, store, index_n, index_n, random_id_n)
  return targets.emit(rows, limit, store, index_n, shown, dropped_E)


def lowest(value_n: np.ndarray, group_n: np.ndarray, room_g: np.ndarray) -> np.ndarray:
  """Returns the indices, ascending, of the room_g lowest values of each group (ascending)."""
  size_g = np.bincount(group_n, minlength=len(room_g))
  if (size_g <= room_g).all():
    return np.arange(len(value_n))
  order_n = np.lexsort((value_n, group_n))
  rank_n = np.arange(len(value_n)) - (np.cumsum(size_g) - size_g)[group_n]
  return np.sort(order_n[rank_n < room_g[group_n]])


MASKING = Masking(targets.MaskOptions, ('cls', 'sep', 'mask'), targets.check, corrupt, slots)
