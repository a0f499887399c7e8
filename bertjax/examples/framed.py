"""Two texts of an example between [CLS] and [SEP]: fairseq's, data/denoising_dataset.py.

The second one is read behind [SEP], so that its first target is [CLS]. The plan gives tokens
without special ones. The noises of BART and MASS are made of it.
"""

from typing import Any

import numpy as np

from bertjax.data_contracts import Stream
from bertjax.examples.layout import Rows, in_turn, shifted, starts


def raw(options: Any, length: int) -> int:
  """Returns the tokens of text that fill rows of so many columns: `Masking.raw`."""
  return length - 2


def sizes(options: Any, tokens: Any) -> dict[str, Any]:
  """Returns the columns of both texts if either has all tokens."""
  return dict(T=tokens + 2, U=tokens + 2)


def text(rows: Rows, id_m: np.ndarray, source_m: np.ndarray, store: Any) -> Stream:
  """Returns [CLS] text [SEP] of each example; one may have no token left."""
  examples, first_E = np.arange(len(rows.length_E)), starts(rows.length_E)
  last_E = first_E + rows.length_E - 1
  example_m = rows.example_n[source_m]
  at_n = in_turn(*(np.searchsorted(example_m, examples, side) for side in ('left', 'right')))
  ends_n = np.tile([store.special['cls'], store.special['sep']], len(examples))
  # `insert` keeps the order of what it puts to one place: the [SEP] of an example, then the [CLS]
  # of the next.
  id_n = np.insert(id_m, at_n, ends_n).astype(np.int32)
  return Stream(id_n, np.insert(source_m, at_n, in_turn(first_E, last_E)))


def target(rows: Rows, store: Any) -> Stream:
  """Returns the whole text as a decoder's, see `layout.shifted`."""
  whole = text(rows, rows.token_n, np.arange(len(rows.token_n)), store)
  return shifted(rows, whole, store.special['sep'])
