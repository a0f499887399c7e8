"""Rows of a language model with memory: columns of the corpus, each row where the last one stopped.

  step 0   | a0 a1 a2 |     lane 0 of the stream a0 a1 .. a8, b0 .. b8, of three tokens a row
           | b0 b1 b2 |     lane 1
  step 1   | a3 a4 a5 |     each row predicts b3 after b2: `Text.after_E`

kimiyoung/transformer-xl, pytorch/data_utils.py:LMOrderedIterator. What does not fill the last row
of a column is left out. Every epoch reads the documents in the order of the corpus, as the original
does: where blank lines separate paragraphs, as in WikiText, a document is no more than one. With
`config.data.shuffle_documents` each epoch has an order of its own; with `config.data.ends` each
document ends with that special token.
"""

from collections.abc import Callable, Iterator

import numpy as np

from bertjax.data import rows
from bertjax.data.lanes import Lanes

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
    ValueError: the vocabulary lacks the special token.
  """
  steps = max(_lanes(store, recipe, seed).size - 1, 0) // length
  return iter([(dict(length=np.full(steps * recipe.lanes, length, np.int32)), {})])


def reader(store, recipe, length: int, seed: int) -> Callable[[int, np.ndarray, bool], rows.Text]:
  """Opens the rows.

  Returns:
    (epoch, index of rows in the epoch, whether its documents are shuffled) -> rows.
  """
  lanes = _lanes(store, recipe, seed)

  def read(epoch: int, index_E: np.ndarray, shuffle: bool) -> rows.Text:
    order = lanes.order(epoch if shuffle and recipe.shuffle_documents else None)
    step_E, lane_E = np.divmod(index_E, recipe.lanes)
    begin_E = lane_E * lanes.size + step_E * length
    length_E = np.full(len(index_E), length)
    token_ET = lanes.tokens(order, begin_E, length_E + 1).reshape(-1, length + 1)
    return rows.Text(
      token_n=token_ET[:, :-1].ravel(),
      type_n=np.zeros(token_ET[:, :-1].size, np.int32),
      length_E=length_E,
      label={},
      row=dict(start=step_E == 0),
      after_E=token_ET[:, -1],
    )

  return read


def _lanes(store, recipe, seed) -> Lanes:
  ends = store.special.get(recipe.ends) if recipe.ends else None
  if recipe.ends and ends is None:
    have = ', '.join(sorted(name for name, found in store.special.items() if found is not None))
    raise ValueError(
      f'config.data.ends={recipe.ends!r} stands behind every document, but the vocabulary has the '
      f"special tokens {have} alone: name one of them, or '' for none"
    )
  return Lanes(store, recipe.lanes, ends, seed)
