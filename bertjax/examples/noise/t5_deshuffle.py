"""T5's deshuffling: the tokens of a text in random order are read, the text is written.

t5/data/preprocessors.py:deshuffle (Liu et al. 2019).
"""

import dataclasses
from typing import Any

import numpy as np

from bertjax.data_contracts import Masking
from bertjax.examples import sentinels
from bertjax.examples.layout import Rows
from bertjax.examples.targets import FREE, at_tokens


@dataclasses.dataclass(frozen=True)
class Options:
  """Fields of `config.data.mask`.

  Attributes:
    static: the same order in every epoch.
  """

  static: bool


def corrupt(rows: Rows, options: Options, store) -> dict[str, Any]:
  """Makes both texts."""
  del options
  every_n = np.arange(len(rows.token_n))
  order_n = np.lexsort((at_tokens(rows, FREE, every_n), rows.example_n))
  end, start = sentinels.ends(store)
  return dict(
    T=sentinels.text(rows, rows.token_n[order_n], order_n, end),
    U=sentinels.target(rows, rows.token_n, every_n, end, start),
  )


MASKING = Masking(
  Options,
  ('sep', 'pad'),
  lambda options, store, length: None,
  corrupt,
  raw=sentinels.raw,
  sizes=sentinels.sizes,
)
