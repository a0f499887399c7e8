"""T5's objectives that hide each token by itself: t5/data/preprocessors.py:iid_noise_mask.

What the encoder reads and the decoder writes is `config.data.mask.form`:

  sentinels  runs of hidden tokens are a sentinel each, the target says what they were
  mask       every hidden token is the first sentinel, the target is the whole text (MASS-style)
  bert       90% of the hidden tokens are the first sentinel and 10% a random id, the target is the
             whole text (BERT-style, iid_15_r10s90_f)
  drop       hidden tokens are left out, the target says them one after the other
"""

import dataclasses
from typing import Any, Literal, get_args

import numpy as np

from bertjax import counter_rng
from bertjax.data_contracts import Masking
from bertjax.examples import sentinels
from bertjax.examples.layout import Rows
from bertjax.examples.targets import FREE, Special, at_tokens, running, uniform_ids
from bertjax.field_types import PositiveShare

DEVIATIONS = 5  # of a binomial count above its mean for which rows have columns
RANDOM = 0.1  # share of BERT's hidden tokens that are a random id


@dataclasses.dataclass(frozen=True)
class Options:
  """Fields of `config.data.mask`.

  Attributes:
    rate: probability of a token to be hidden.
    form: what stands for hidden tokens in the first text: sentinels, one mask, BERT's 90% mask and
      10% random, or nothing (drop).
    static: the same tokens in every epoch.
  """

  rate: PositiveShare
  form: Literal['sentinels', 'mask', 'bert', 'drop']
  static: bool


def _most(tokens: Any, share: float) -> np.ndarray:
  """Returns a count of so many tokens that no example has more of."""
  tokens = np.asarray(tokens)
  most = np.ceil(share * tokens + DEVIATIONS * np.sqrt(share * (1 - share) * tokens))
  return np.minimum(most.astype(np.int64), tokens)


def sizes(options: Options, tokens: Any) -> dict[str, Any]:
  """Returns the columns of both texts."""
  if options.form in ('mask', 'bert'):
    return dict(T=tokens + 1, U=tokens + 1)
  hidden = _most(tokens, options.rate)
  runs = 0 if options.form == 'drop' else np.minimum(hidden, tokens) + 1
  return dict(T=tokens + 1, U=np.minimum(hidden + runs, 2 * tokens) + 1)


def _check(options: Options, store, length: int) -> None:
  runs = _most(length, options.rate * (1 - options.rate)) if options.form == 'sentinels' else 1
  sentinels.check(store, 0 if options.form == 'drop' else int(runs), length)


def mask(rows: Rows, options: Options) -> np.ndarray:
  """Returns which tokens are hidden, bool [n]; of an example as many as rows have columns for."""
  draw_n = counter_rng.uniform(at_tokens(rows, FREE, np.arange(len(rows.token_n))))
  mask_n = draw_n < options.rate
  until_n = running(mask_n, rows.example_n, len(rows.length_E))
  return mask_n & (until_n <= _most(rows.length_E, options.rate)[rows.example_n])


def corrupt(rows: Rows, options: Options, store) -> dict[str, Any]:
  """Makes both texts."""
  mask_n = mask(rows, options)
  ids, every_n = np.array(store.sentinels), np.arange(len(rows.token_n))
  inputs, outputs = (rows.token_n, every_n), (rows.token_n, every_n)
  if options.form == 'sentinels':
    inputs, outputs = (sentinels.collapsed(rows, hide, ids) for hide in (mask_n, ~mask_n))
  elif options.form == 'drop':
    inputs, outputs = ((rows.token_n[keep], every_n[keep]) for keep in (~mask_n, mask_n))
  else:
    shown_n = ids[0]
    if options.form == 'bert':
      random_n = uniform_ids(rows, get_args(Special), store, every_n)
      is_random_n = counter_rng.uniform(at_tokens(rows, FREE + 1, every_n)) < RANDOM
      shown_n = np.where(is_random_n, random_n, ids[0])
    inputs = np.where(mask_n, shown_n, rows.token_n), every_n
  return dict(T=sentinels.text(rows, *inputs, store), U=sentinels.target(rows, *outputs, store))


MASKING = Masking(
  Options, ('sep', 'pad'), _check, corrupt, raw=sentinels.raw, sizes=sizes, targets=('written',)
)
