"""T5's deshuffling: the tokens of a text in random order are read, the text is written.

t5/data/preprocessors.py:deshuffle (Liu et al. 2019).
"""

from typing import Any

import numpy as np

from bertjax.examples import sentinels
from bertjax.examples.layout import Rows
from bertjax.examples.targets import FREE, at_tokens


def corrupt(rows: Rows, options: sentinels.Options, store) -> dict[str, Any]:
  """Makes both texts."""
  every_n = np.arange(len(rows.token_n))
  order_n = np.lexsort((at_tokens(rows, FREE, every_n), rows.example_n))
  return dict(
    T=sentinels.text(rows, rows.token_n[order_n], order_n, store),
    U=sentinels.target(rows, rows.token_n, every_n, store),
  )


MASKING = sentinels.of_all_tokens(corrupt)
