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
from bertjax.examples.noise.xlm import slots
from bertjax.field_types import Count, NonNegative

_PICK = targets.FREE


@dataclasses.dataclass(frozen=True)
class Options(targets.MaskOptions):
  """Fields of `config.data.mask` besides those of `MaskOptions`.

  Attributes:
    smoothing: a word that occurs n times is drawn in proportion to n^-smoothing; 0: all alike.
    block: rows that are drawn from together, the original's batch.
  """

  smoothing: NonNegative = 0.7
  block: Count = 5


def corrupt(rows: Rows, options: Options, store) -> dict[str, np.ndarray]:
  """Masks a batch; see `Masking.corrupt`."""
  special = targets.ids_of(tuple(store.special), store)
  candidate_n = np.flatnonzero(~np.isin(rows.token_n, special))
  weight_n = np.maximum(store.counts[rows.token_n[candidate_n]], 1.0) ** -options.smoothing
  # The lowest of exponential waiting times of these rates are draws without replacement.
  u_n = counter_rng.uniform(targets.at_tokens(rows, _PICK, candidate_n))
  turn_n = -np.log1p(-u_n) / weight_n
  row_n = rows.row_E[rows.example_n[candidate_n]]
  tokens_B = np.bincount(rows.row_E, rows.length_E, rows.shape[0])
  asked_b = np.ceil(options.rate * tokens_B.reshape(-1, options.block).sum(1)).astype(np.int64)
  drawn_n = targets.lowest(turn_n, row_n // options.block, asked_b)
  limit, index_n = slots(options, rows.shape[1]), candidate_n[drawn_n]
  kept_n, dropped_E = targets.within(rows, limit, index_n, turn_n[drawn_n])
  return targets.decided(rows, options, limit, store, index_n[kept_n], dropped_E)


MASKING = Masking(
  Options, ('pad', 'cls', 'sep', 'mask'), targets.check, corrupt,
  block=lambda options: options.block,  # a batch holds whole ones
)  # fmt: skip
