"""DistilBERT's masking: rare words are predicted more often than frequent ones.

transformers/examples/research_projects/distillation, distiller.py:prepare_batch_mlm, which follows
XLM. Of a block of mask.block rows, the original's batch, exactly ceil(rate * tokens) tokens are
drawn without replacement, special tokens counted. The probability of a token follows
max(count, 1)^-smoothing, counts being those of the text that is read (train.py: token_probs); it is
0 for special tokens, [UNK] and [MASK] among them.

Unlike XLM's, padding is not counted, words without a count are drawn too, and no token is drawn
that is then left out. Of the chosen tokens mask_share show [MASK], random_share a random id, the
others stay. A row has XLM's number of slots; what exceeds them is dropped and counted. In half
precision the original also drops the earliest targets of a batch until their number is a multiple
of 8; here shapes are fixed, so none are.
"""

import dataclasses

import numpy as np

from bertjax import counter_rng
from bertjax.data_contracts import Masking
from bertjax.examples import targets
from bertjax.examples.layout import Rows
from bertjax.examples.noise.xlm import lowest, slots
from bertjax.field_types import Count, NonNegative

_PICK = targets.FREE


@dataclasses.dataclass(frozen=True)
class Options(targets.MaskOptions):
  """Fields of `config.data.mask` besides those of `MaskOptions`.

  Attributes:
    smoothing: a word that occurs n times is drawn in proportion to n^-smoothing; 0: all alike.
    block: rows that are drawn from together.
  """

  smoothing: NonNegative
  block: Count


def block(options: Options) -> int:
  """Returns how many rows are corrupted together: a batch holds whole blocks."""
  return options.block


def corrupt(rows: Rows, options: Options, store) -> dict[str, np.ndarray]:
  """Masks a batch.

  Args:
    rows: the batch, of whole blocks.
    options: the rule.
    store: for the special ids, the vocabulary size and the counts.

  Returns:
    As `targets.emit`.
  """
  special = targets.ids_of(tuple(store.special), store)
  candidate_n = np.flatnonzero(~np.isin(rows.token_n, special))
  weight_n = np.maximum(store.counts[rows.token_n[candidate_n]], 1.0) ** -options.smoothing
  # The lowest of exponential waiting times of these rates are draws without replacement.
  u_n = counter_rng.uniform(targets.at_tokens(rows, _PICK, candidate_n))
  turn_n = -np.log1p(-u_n) / weight_n
  row_n = rows.row_E[rows.example_n[candidate_n]]
  drawn_n = lowest(turn_n, row_n // options.block, _numbers(rows, options))

  limit = slots(options, rows.shape[1])
  kept_n = drawn_n[lowest(turn_n[drawn_n], row_n[drawn_n], np.full(rows.shape[0], limit))]
  index_n, examples = candidate_n[kept_n], len(rows.row_E)
  dropped_E = targets.count(rows.example_n[candidate_n[drawn_n]], 1, examples)
  dropped_E -= targets.count(rows.example_n[index_n], 1, examples)
  random_id_n = targets.uniform_ids(rows, options.never_drawn, store, index_n)
  shown = targets.show(rows, options, store, index_n, index_n, random_id_n)
  return targets.emit(rows, limit, store, index_n, shown, dropped_E)


def _numbers(rows: Rows, options: Options) -> np.ndarray:
  """Returns how many tokens each block asks for, int64."""
  tokens_B = np.bincount(rows.row_E, rows.length_E, rows.shape[0])
  return np.ceil(options.rate * tokens_B.reshape(-1, options.block).sum(1)).astype(np.int64)


MASKING = Masking(Options, ('cls', 'sep', 'mask'), targets.check, corrupt, slots, block)
