"""T5's prefix language modelling: the first part of a text is read, the rest is written.

t5/data/preprocessors.py:prefix_lm: the place of the cut is drawn, every one equally likely.
"""

from typing import Any

import numpy as np

from bertjax import counter_rng
from bertjax.examples import sentinels
from bertjax.examples.layout import Rows
from bertjax.examples.targets import FREE


def corrupt(rows: Rows, options: sentinels.Options, store) -> dict[str, Any]:
  """Makes both texts; an example of one token is written whole."""
  bits_E = counter_rng.fold(rows.key_E, FREE)
  read_E = np.minimum(counter_rng.below(bits_E, rows.length_E) + 1, rows.length_E - 1)
  (read_m,) = np.nonzero(rows.position_n < read_E[rows.example_n])
  (write_m,) = np.nonzero(rows.position_n >= read_E[rows.example_n])
  return dict(
    T=sentinels.text(rows, rows.token_n[read_m], read_m, store),
    U=sentinels.target(rows, rows.token_n[write_m], write_m, store),
  )


MASKING = sentinels.of_all_tokens(corrupt)
