"""T5's span corruption: runs of tokens become sentinels, and the second text says what they were.

Raffel et al. 2020; t5/data/preprocessors.py:span_corruption. Counts and sizes are the original's:
the mask rounds in float32, half to even, what sizes the two texts in Python's float64, so that a
few lengths overflow there (172 columns promise 38 targets and get 40); here both have room.
"""

import dataclasses
from typing import Any

import numpy as np

from bertjax.data_contracts import Masking
from bertjax.examples import sentinels
from bertjax.examples.layout import Rows
from bertjax.examples.targets import FREE
from bertjax.field_types import Positive, PositiveShare


@dataclasses.dataclass(frozen=True)
class Options:
  """Fields of `config.data.mask`.

  Attributes:
    rate: share of the tokens that is hidden.
    mean_span: tokens of a hidden run, on average.
    numbered: whether each run has a sentinel of its own; else all have the first one.
    static: the same runs in every epoch.
  """

  rate: PositiveShare
  mean_span: Positive
  numbered: bool
  static: bool


def raw(options: Options, length: int) -> int:
  """Returns the tokens of text that fill rows of so many columns: those that the helper takes, or
  fewer where the mask makes a run more than it promises, as of 36 tokens 5 in spans of 10."""
  tokens = sentinels.taken(length, options.rate, options.mean_span)
  while tokens > 1 and sizes(options, tokens)['T'] > length:
    tokens -= 1
  return tokens


def sizes(options: Options, tokens: Any) -> dict[str, Any]:
  """Returns the columns of both texts: the larger of what the mask gives and the helper says."""
  hidden = sentinels.hidden(tokens, options.rate)
  runs = np.minimum(sentinels.spans(hidden, options.mean_span), np.maximum(tokens - hidden, 1))
  return dict(T=tokens - hidden + runs + 1, U=hidden + runs + 1)


def _check(options: Options, store, length: int) -> None:
  runs = sentinels.spans(sentinels.hidden(length, options.rate), options.mean_span)
  sentinels.check(store, int(runs) if options.numbered else 1, length)


def corrupt(rows: Rows, options: Options, store) -> dict[str, Any]:
  """Makes both texts; see `sentinels`."""
  mask_n = sentinels.span_mask(rows, options.rate, options.mean_span, (FREE, FREE + 1))
  ids = np.array(store.sentinels if options.numbered else store.sentinels[:1])
  return dict(
    T=sentinels.text(rows, *sentinels.collapsed(rows, mask_n, ids), store),
    U=sentinels.target(rows, *sentinels.collapsed(rows, ~mask_n, ids), store),
  )


MASKING = Masking(
  Options, ('sep', 'pad'), _check, corrupt, raw=raw, sizes=sizes, targets=('written',)
)
