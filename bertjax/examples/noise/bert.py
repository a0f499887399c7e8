"""Masked language modelling: which tokens are predicted, and what the input shows there.

Two rules (`config.data.mask.rule`), here at rate 0.15:

  bert     round(.15 * length), at least 1, of the tokens other than [CLS] and [SEP]
           (google-research/bert, create_pretraining_data.py). With whole_word the words are
           shuffled and taken one by one; one that would exceed the count is skipped.
  roberta  floor(.15 * length + u), u uniform in [0, 1), of all tokens, <s> and </s> included
           (fairseq, mask_tokens_dataset.py). With whole_word the same count of words, and one
           decision per word.

length includes the special tokens. Of the chosen tokens mask_share show [MASK], random_share a
random id (uniform over all but mask.never_drawn, so maybe the original one), and the others
stay. A row has P slots; where its examples ask for more, each gets its share and what is dropped is
counted.
"""

import dataclasses
from typing import Literal

import numpy as np

from bertjax import counter_rng
from bertjax.data_contracts import Masking
from bertjax.examples import targets
from bertjax.examples.layout import Rows


@dataclasses.dataclass(frozen=True)
class Options(targets.MaskOptions):
  """Fields of `config.data.mask` besides those of `MaskOptions`.

  Attributes:
    rule: how many are predicted, and of which: 'bert' rounds and leaves special tokens out,
      'roberta' rounds at random and takes all.
    whole_word: words are chosen as a whole.
  """

  rule: Literal['bert', 'roberta'] = 'bert'
  whole_word: bool = False


def corrupt(rows: Rows, options: Options, store) -> dict[str, np.ndarray]:
  """Masks a batch; see `Masking.corrupt`."""
  roberta = options.rule == 'roberta'
  if roberta:
    candidate_n = np.arange(len(rows.token_n))
  else:
    candidate_n = targets.not_special(rows, store)
  units = targets.tokens_or_words(rows, options.whole_word, store, candidate_n)
  limit = targets.slots(options, rows.shape[1])
  taken_n, dropped_E = _take(rows, options, limit, units, targets.shuffle(rows, units, candidate_n))
  index_n, lead_n = targets.tokens_of(units, taken_n, candidate_n)
  # fairseq decides once per word, BERT once per token.
  decide_n = lead_n if roberta else index_n
  return targets.decided(rows, options, limit, store, index_n, dropped_E, decide_n)


def _take(rows, options, limit, units, order_n):
  """Returns the chosen units, and how many targets of each example the row had no slot for."""
  examples = len(rows.row_E)
  if options.rule == 'bert':
    asked_E = targets.bert_count(rows, options.rate)
    asked_E = np.minimum(asked_E, targets.count(units.example_n, units.size_n, examples))
  else:
    units_E = targets.count(units.example_n, 1, examples)
    u_E = counter_rng.uniform(targets.bits(rows, targets.COUNT, np.arange(examples), 0))
    number_E = np.floor(options.rate * units_E + u_E)
    rank_n = targets.running(np.ones_like(order_n), units.example_n, examples)
    order_n = order_n[rank_n <= number_E[units.example_n]]
    asked_E = targets.count(units.example_n[order_n], units.size_n[order_n], examples)
  room_E = targets.share(asked_E, rows.row_E, limit)
  chosen_n = targets.fit(units.example_n[order_n], units.size_n[order_n], room_E)
  return order_n[chosen_n], asked_E - room_E


MASKING = Masking(Options, ('pad', 'cls', 'sep', 'mask'), targets.check, corrupt)
