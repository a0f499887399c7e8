"""DeBERTa-v3's masking: one token of every six shows [MASK], until the row's count is reached.

microsoft/DeBERTa, DeBERTa/apps/tasks/mlm_task.py (NGramMaskGenerator, with max_gram 1) and
rtd_task.py. The tokens of an example but the special ones are taken six at a time, from the first,
and of each six one is hidden, drawn uniformly. Those hidden are counted from the left, and behind
round(rate * length), or max_targets, none is: as one in six is more than the rate, the last tenth
of a long example is never hidden.
"""

import dataclasses

import numpy as np

from bertjax import counter_rng
from bertjax.data_contracts import Masking
from bertjax.examples import targets
from bertjax.examples.layout import Rows, starts
from bertjax.field_types import Count, Natural, PositiveShare

_PICK = targets.FREE


@dataclasses.dataclass(frozen=True)
class Options:
  """Fields of `config.data.mask`.

  Attributes:
    rate: share of the tokens that are predicted.
    window: tokens of which one is hidden; int(1 / rate) of the original.
    static: the same masks in every epoch.
    max_targets: slots per row; 0: what the rate asks for.
  """

  rate: PositiveShare
  window: Count = 6
  static: bool = False
  max_targets: Natural = 0


def corrupt(rows: Rows, options: Options, store) -> dict[str, np.ndarray]:
  """Masks a batch; see `Masking.corrupt`."""
  limit, examples = targets.slots(options, rows.shape[1]), len(rows.row_E)
  special = targets.ids_of(('pad', 'unk', 'cls', 'sep', 'mask'), store)
  candidate_n = np.flatnonzero(~np.isin(rows.token_n, special))
  example_n = rows.example_n[candidate_n]
  count_E = targets.count(example_n, 1, examples)
  place_n = np.arange(len(candidate_n)) - starts(count_E)[example_n]
  window_n, at_n = np.divmod(place_n, options.window)
  size_n = np.minimum(options.window, count_E[example_n] - window_n * options.window)
  pick_n = counter_rng.below(targets.bits(rows, _PICK, example_n, window_n), size_n)
  index_n = candidate_n[at_n == pick_n]
  asked_E = np.minimum(targets.bert_count(rows, options.rate), -(-count_E // options.window))
  room_E = targets.share(asked_E, rows.row_E, limit)
  rank_n = targets.running(np.ones_like(index_n), rows.example_n[index_n], examples)
  index_n = index_n[rank_n <= room_E[rows.example_n[index_n]]]
  shown = np.full(len(index_n), store.special['mask']), np.ones(len(index_n), bool)
  return targets.emit(rows, limit, store, index_n, shown, asked_E - room_E)


MASKING = Masking(Options, ('pad', 'cls', 'sep', 'mask'), targets.check_length, corrupt)
