"""Languages in turn: which rows a run reads where small languages are read more often than they are
large.

A language with the share q of the rows is read with p ~ q^alpha (Devlin's multilingual BERT .7,
Conneau and Lample 2019); a plan's column `weight` says what a row counts, if not 1. Rows come in
blocks of one language. Every window of WINDOW blocks holds its rounded share of blocks of each
language, at least one, in an order of its own; a language's own rows come in a new order in each of
its epochs. So a row follows from its number and the seed alone: nothing is counted while it is
read, and small languages repeat rather than end.

What is called language here is a plan's column `group`: for parallel text it is the pair.
"""

from typing import NamedTuple

import numpy as np

from bertjax import counter_rng

WINDOW = 1 << 14  # blocks


class Schedule(NamedTuple):
  """The rows of each group, and how often each group comes.

  Attributes:
    row_n: int64 rows, group by group.
    start_g: int64 [G + 1], the place in row_n at which each group begins.
    blocks_g: int64 [G + 1], the same in a window of blocks.
    block: rows that share a group.
  """

  row_n: np.ndarray
  start_g: np.ndarray
  blocks_g: np.ndarray
  block: int


def parallel(store) -> np.ndarray:
  """Returns the documents that are a sentence and its translation, int64.

  They have two sentences, of different languages; a store that knows no languages has none.
  """
  if 'language' not in store.columns:
    return np.zeros(0, np.int64)
  language_S = store.column('language')
  two_D = np.flatnonzero(np.diff(store.documents) == 2)
  first_n = store.documents[two_D]
  return two_D[language_S[first_n] != language_S[first_n + 1]]


class Peers(NamedTuple):
  """The documents of each language; those of a store that knows none are all alike.

  Attributes:
    language_D: uint8, or None.
    document_n: int64, language by language.
    start_l: int64, where each language begins in document_n.
    size_l: int64, its documents.
  """

  language_D: np.ndarray | None
  document_n: np.ndarray
  start_l: np.ndarray
  size_l: np.ndarray

  def draw(self, bits_n: np.ndarray, document_n: np.ndarray) -> np.ndarray:
    """Turns uint64 bits into documents of the same language as these ones, int64."""
    if self.language_D is None:
      return counter_rng.below(bits_n, self.size_l)
    language_n = self.language_D[document_n]
    place_n = self.start_l[language_n] + counter_rng.below(bits_n, self.size_l[language_n])
    return self.document_n[place_n]


def peers(store) -> Peers:
  """Groups the documents of a store by the language of their first sentence."""
  none = np.zeros(0, np.int64)
  if 'language' not in store.columns:
    return Peers(None, none, none, np.array([len(store.documents) - 1]))
  language_D = np.asarray(store.column('language')[store.documents[:-1]])
  size_l = np.bincount(language_D)
  return Peers(
    language_D, np.argsort(language_D, kind='stable'), np.cumsum(size_l) - size_l, size_l
  )


def shares(rows_g: np.ndarray, alpha: float, blocks: int = WINDOW) -> np.ndarray:
  """Returns how many of the blocks go to each group: those of p ~ rows^alpha, rounded, int64 [G].

  `rows_g` may count something else than rows. A group with any gets at least one block, one with
  none none; what rounding leaves over or lacks is the most frequent group's.
  """
  weight_g = np.where(rows_g > 0, np.maximum(rows_g, 1.0) ** alpha, 0.0)
  blocks_g = np.rint(blocks * weight_g / weight_g.sum()).astype(np.int64)
  blocks_g = np.maximum(blocks_g, rows_g > 0)
  blocks_g[np.argmax(blocks_g)] += blocks - blocks_g.sum()
  return blocks_g


def schedule(
  group_n: np.ndarray, alpha: float, block: int, weight_n: np.ndarray | None = None
) -> Schedule:
  """Makes the schedule of rows of these groups (integers >= 0), which count 1 or their weight."""
  rows_g = np.bincount(group_n)
  weight_g = rows_g
  if weight_n is not None:  # a group with rows has a share, even if no sentence begins in them
    weight_g = np.maximum(np.bincount(group_n, weight_n), rows_g > 0)
  until = lambda count_g: np.append(0, np.cumsum(count_g))
  by_group = np.argsort(group_n, kind='stable')
  return Schedule(by_group, until(rows_g), until(shares(weight_g, alpha)), block)


def rows_at(row_n: np.ndarray, plan: Schedule, seed: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns which rows are read.

  Args:
    row_n: int64 row numbers counted from the start of the run.
    plan: the schedule.
    seed: of the order.

  Returns:
    The epoch of the row's group, and the row: both int64.
  """
  block_n, within_n = np.divmod(row_n, plan.block)
  window_n, place_n = np.divmod(block_n, WINDOW)
  root = counter_rng.root(seed, 'languages')
  turn_n = counter_rng.permute(counter_rng.fold(root, window_n), place_n, WINDOW)
  group_n = np.searchsorted(plan.blocks_g, turn_n, 'right') - 1
  each_g, size_g = np.diff(plan.blocks_g), np.diff(plan.start_g)
  turn_n += window_n * each_g[group_n] - plan.blocks_g[group_n]
  epoch_n, index_n = np.divmod(turn_n * plan.block + within_n, size_g[group_n])
  root = counter_rng.root(seed, 'shuffle')
  for group in np.unique(group_n):
    of_group = group_n == group
    key_n = counter_rng.fold(counter_rng.fold(root, group), epoch_n[of_group])
    index_n[of_group] = counter_rng.permute(key_n, index_n[of_group], int(size_g[group]))
  return epoch_n, plan.row_n[plan.start_g[group_n] + index_n]
