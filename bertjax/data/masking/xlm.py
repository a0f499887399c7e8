"""XLM's masking: each token by a coin of its own, or rare words before frequent ones.

facebookresearch/XLM, trainer.py:mask_out. Every token but the first of its example may be chosen,
</s> in the middle included. With mask.alpha = 0 (XLM's sample_alpha) each one is, with probability
mask.rate. Otherwise exactly ceil(rate * longest * block) tokens of a block of mask.block rows are
drawn without replacement, longest being the tokens of its longest row and padding counting as in
the original's batch; a token's probability follows max(count, 1)^-alpha of the training text, and
is 0 for ids that do not occur there, as special tokens do not. First tokens are drawn too and then
left out.

Of the chosen tokens mask_share show [MASK], random_share a random id, the others stay. A row has
mask.max_targets slots, or mean and five standard deviations of the coins; what exceeds them is
dropped and counted. In half precision the original also drops the earliest targets of a batch until
their number is a multiple of 8, for its matrix products; here shapes are fixed, so none are.
"""

import dataclasses
import math

import numpy as np

from bertjax.config.field_types import Count, NonNegative
from bertjax.data import counter_rng, targets
from bertjax.data.layout import Rows
from bertjax.data.types import Masking

_PICK = targets.FREE


@dataclasses.dataclass(frozen=True)
class Options(targets.MaskOptions):
  """Fields of `config.data.mask` besides those of `MaskOptions`.

  Attributes:
    alpha: rare words are chosen before frequent ones; 0: each token by a coin of its own.
    block: rows that are drawn from together where alpha is not 0.
  """

  alpha: NonNegative
  block: Count


def block(options: Options) -> int:
  """Returns how many rows are corrupted together: a batch holds whole blocks."""
  return options.block if options.alpha else 1


def slots(options: targets.MaskOptions, length: int) -> int:
  """Returns P: max_targets, or mean and 5 deviations of `length` coins; 67 of 256 at .15."""
  rate = options.rate
  most = math.ceil(rate * length + 5 * math.sqrt(rate * (1 - rate) * length))
  return options.max_targets or min(most, length)


def corrupt(rows: Rows, options: Options, store) -> dict[str, np.ndarray]:
  """Masks a batch.

  Args:
    rows: the batch, of whole blocks.
    options: the rule.
    store: for the special ids, the vocabulary size and the counts.

  Returns:
    As `targets.emit`.
  """
  limit = slots(options, rows.shape[1])
  every_n = np.arange(len(rows.token_n))
  # Lower is chosen sooner: the coins themselves, or exponential waiting times of these rates.
  turn_n = counter_rng.uniform(targets.at_tokens(rows, _PICK, every_n))
  if options.alpha:
    weight_V = np.where(store.counts > 0, np.maximum(store.counts, 1.0) ** -options.alpha, 0.0)
    weight_V[store.special['pad']] = 0
    weight_n = weight_V[rows.token_n]
    with np.errstate(divide='ignore'):
      turn_n = -np.log1p(-turn_n) / weight_n
    index_n = every_n[weight_n > 0]
    block_n = rows.row_E[rows.example_n[index_n]] // options.block
    index_n = index_n[lowest(turn_n[index_n], block_n, _numbers(rows, options))]
  else:
    index_n = every_n[turn_n < options.rate]
  index_n = index_n[rows.position_n[index_n] > 0]

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


def _numbers(rows, options):
  """Returns how many tokens each block asks for, int64."""
  tokens_B = np.bincount(rows.row_E, rows.length_E, rows.shape[0]).astype(np.int64)
  longest_b = tokens_B.reshape(-1, options.block).max(1)
  return np.ceil(options.rate * (longest_b * options.block)).astype(np.int64)


MASKING = Masking(Options, ('cls', 'sep', 'mask'), targets.check, corrupt, slots, block)
