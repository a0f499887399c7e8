"""MASS's noise: a run of the text is hidden, and the decoder writes that run alone.

Song et al. 2019; microsoft/MASS, MASS-unsupNMT/src/trainer.py:restricted_mask_sent and
MASS-summarization/mass/masked_dataset.py. The text is [CLS] tokens [SEP]. Of each block of `block`
tokens behind its [CLS] a run is hidden, round(rate * block) of them (half to even); with 0 the run
is that share of the whole text. With probability `edges` it begins with its block, with `edges` it
ends with it, else it lies anywhere, each place equally likely. Of the hidden tokens mask_share show
[MASK], random_share a random id, the others stay.

The decoder reads the true token before each hidden one, with that token's own position in the text,
and sees the tokens of the runs before its own as well as those of its own.
"""

import dataclasses
from typing import Any

import numpy as np

from bertjax import counter_rng
from bertjax.data_contracts import Masking, Stream
from bertjax.errors import UserError
from bertjax.examples import framed, targets
from bertjax.examples.layout import Rows, ragged, starts
from bertjax.field_types import Natural, PositiveShare, Share

_COIN, _BEGIN = targets.FREE, targets.FREE + 1


@dataclasses.dataclass(frozen=True)
class Options:
  """Fields of `config.data.mask`.

  Attributes:
    rate: share of a block that is hidden.
    block: tokens of a block; 0: the whole text.
    edges: chance of a run to begin its block, and to end it.
    mask_share: of the hidden tokens, the share that shows [MASK].
    random_share: of these, the share that shows a random id.
    static: the same runs in every epoch.
  """

  rate: PositiveShare
  block: Natural
  edges: Share
  mask_share: Share
  random_share: Share
  static: bool


def hidden(tokens: Any, rate: float) -> np.ndarray:
  """Returns the length of the run in blocks of so many tokens, int64, 1 at least."""
  return np.maximum(np.rint(np.asarray(tokens) * rate).astype(np.int64), 1)


def sizes(options: Options, tokens: Any) -> dict[str, Any]:
  """Returns the columns of both texts."""
  columns = np.asarray(tokens) + 2
  if not options.block:
    return dict(T=columns, U=hidden(columns, options.rate))
  whole, rest = np.divmod(columns - 1, options.block)
  last = np.where(rest > 0, hidden(rest, options.rate), 0)
  return dict(T=columns, U=whole * hidden(options.block, options.rate) + last)


def corrupt(rows: Rows, options: Options, store) -> dict[str, Any]:
  """Makes both texts."""
  text = framed.text(rows, rows.token_n, np.arange(len(rows.token_n)), store)
  size_E = rows.length_E + 2
  first_E = starts(size_E)
  block = options.block or int(size_E.max())
  example_b, number_b = ragged(-(-(size_E - 1) // block))
  begin_b = number_b * block + 1  # columns of the text
  size_b = np.minimum(block, size_E[example_b] - begin_b)
  share_b = size_b if options.block else size_E[example_b]
  run_b = np.minimum(hidden(share_b, options.rate), size_b)
  coin_b = counter_rng.uniform(targets.bits(rows, _COIN, example_b, number_b))
  place_b = counter_rng.below(targets.bits(rows, _BEGIN, example_b, number_b), size_b - run_b + 1)
  place_b = np.where(coin_b < options.edges, 0, place_b)
  place_b = np.where(coin_b >= 1 - options.edges, size_b - run_b, place_b)
  owner_h, offset_h = ragged(run_b)
  column_h = (begin_b + place_b)[owner_h] + offset_h
  at_h = first_E[example_b][owner_h] + column_h
  true_h, before_h = text.token_m[at_h], text.token_m[at_h - 1]
  shown_m = text.token_m.copy()
  shown_m[at_h] = _shown(rows, options, store, true_h, example_b[owner_h], column_h)
  field = dict(target=true_h, weight=np.ones(len(at_h), np.float32), out_position=column_h - 1)
  read = text._replace(token_m=shown_m)
  return dict(T=read, U=Stream(before_h, text.source_m[at_h], field))


def _shown(rows: Rows, options: Options, store, true_h, example_h, column_h) -> np.ndarray:
  coin_h = counter_rng.uniform(targets.bits(rows, targets.SHOW, example_h, column_h))
  drawn_h = targets.bits(rows, targets.ID, example_h, column_h)
  random_h = counter_rng.below(drawn_h, store.vocabulary_size)
  shown_h = np.where(coin_h < options.mask_share, store.special['mask'], true_h)
  return np.where(coin_h >= 1 - options.random_share, random_h, shown_h).astype(np.int32)


def _check(options: Options, store, length: int) -> None:
  targets.check_length(options, store, length)
  if options.mask_share + options.random_share > 1 or options.edges > 0.5:
    raise UserError(
      'config.data.mask: expected mask_share + random_share <= 1 and edges <= 0.5, got '
      f'{options.mask_share}, {options.random_share} and {options.edges}'
    )


MASKING = Masking(
  Options,
  ('cls', 'sep', 'mask'),
  _check,
  corrupt,
  raw=framed.raw,
  sizes=sizes,
  targets=('framed',),
)
