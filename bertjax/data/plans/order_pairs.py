"""ALBERT's pairs: are A and B in order? `create_pretraining_data.py` of google-research/albert.

Chunks, target lengths and truncation are BERT's (`pairs.py`). A chunk of several sentences is cut
into A and B, and a coin swaps the two: label 1. `config.data.random_b` says what becomes of a chunk
of one sentence:

  True   the original's quirk: B is random text of another document, and the label is 1, so that
         label 1 mixes swapped and unrelated pairs.
  False  mended: a chunk takes a second sentence even beyond its target, and a document's last
         sentence alone makes no example (counted in lone_sentences). Label 1 is swapped, always.
"""

from collections.abc import Iterator

import numpy as np

from bertjax.data import layout
from bertjax.data.plans import pairs
from bertjax.errors import UserError

SPECIAL = pairs.SPECIAL
OPTIONS = ('random_b',)


def build(store, recipe, length: int, seed: int, window: int = pairs.WINDOW) -> Iterator[tuple]:
  """Makes the plan in pieces.

  Args:
    store, recipe, length, seed, window: as of `pairs.build`; `recipe.random_b` is used as well.

  Returns:
    As `pairs.build`, with the column order (0 in order, 1 not) for next; with random_b off also
    the count lone_sentences.

  Raises:
    UserError: as `pairs.build`, or no document of two sentences.
  """
  task = _task(recipe.random_b)
  found = pairs.pieces(store, recipe, length, seed, window, task)
  if np.diff(store.documents).max() < 2:
    raise UserError(
      'order_pairs predicts the order of sentences: expected documents of two and more, got '
      f'{len(store.documents) - 1} documents of at most one in {store.path}. Prepare the store '
      'with --split=sentences, or use config.data.plan=pairs'
    )
  return found


def assemble(store, column: dict[str, np.ndarray]) -> layout.Text:
  """Makes [CLS] A [SEP] B [SEP] of the given examples (columns as `build` yields them)."""
  return pairs.assemble(store, column, _task(True))


def _task(random_b: bool) -> pairs.Task:
  return pairs.Task('order', swap=True, least=1 if random_b else 2)
