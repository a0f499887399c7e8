"""Rows of a language model with memory: columns of the corpus, each row where the last one stopped.

  step 0   | a0 a1 a2 |     lane 0 of the stream a0 a1 .. a8, b0 .. b8, of three tokens a row
           | b0 b1 b2 |     lane 1
  step 1   | a3 a4 a5 |     each row predicts b3 after b2: `Text.after_E`

kimiyoung/transformer-xl, pytorch/data_utils.py:LMOrderedIterator. The last row of a column holds
what is left of it. Every epoch reads the documents in the order of the corpus, as the original;
with `config.data.shuffle_documents` each has an order of its own. With `config.data.ends` each
document ends with that special token.
"""

from collections.abc import Callable, Iterator

import numpy as np

from bertjax.data import layout
from bertjax.data.column_stream import Lanes
from bertjax.errors import UserError

SPECIAL = ()
OPTIONS = ('lanes', 'ends')


def build(store, recipe, length: int, seed: int) -> Iterator[tuple]:
  """Makes the plan: how many rows an epoch has. What is in them follows from `reader`.

  Args:
    store: the token store; only its offsets are read.
    recipe: `config.data`, with lanes (rows of a batch), ends (a special token, or '') and
      shuffle_documents.
    length: tokens per row.
    seed: of the orders of the documents.

  Returns:
    An iterator of one piece (columns, counts): the column length int32.

  Raises:
    UserError: the vocabulary lacks the special token.
  """
  predicted = max(_lanes(store, recipe, seed).size - 1, 0)
  length_t = np.full(-(-predicted // length), length, np.int32)
  length_t[-1:] -= -predicted % length
  return iter([(dict(length=np.repeat(length_t, recipe.lanes)), {})])


def reader(store, recipe, length: int, seed: int) -> Callable[[int, np.ndarray, bool], layout.Text]:
  """Opens the rows.

  Returns:
    (epoch, index of rows in the epoch, whether its documents are shuffled) -> rows.
  """
  lanes = _lanes(store, recipe, seed)

  def read(epoch: int, index_E: np.ndarray, shuffle: bool) -> layout.Text:
    order = lanes.order(epoch if shuffle and recipe.shuffle_documents else None)
    step_E, lane_E = np.divmod(index_E, recipe.lanes)
    begin_E = lane_E * lanes.size + step_E * length
    length_E = np.minimum(length, lanes.size - 1 - step_E * length)
    read_m = lanes.tokens(order, begin_E, length_E + 1)
    after_E = np.cumsum(length_E + 1) - 1
    token_n = np.delete(read_m, after_E)
    return layout.Text(
      token_n=token_n,
      type_n=np.zeros_like(token_n),
      length_E=length_E,
      label={},
      row=dict(start=step_E == 0),
      after_E=read_m[after_E],
    )

  return read


def _lanes(store, recipe, seed) -> Lanes:
  ends = store.special.get(recipe.ends) if recipe.ends else None
  if recipe.ends and ends is None:
    have = ', '.join(sorted(name for name, found in store.special.items() if found is not None))
    raise UserError(
      f'config.data.ends={recipe.ends!r} stands behind every document, but the vocabulary has the '
      f"special tokens {have} alone: name one of them, or '' for none"
    )
  return Lanes(store, recipe.lanes, ends, seed)
