"""The order in which a run reads the rows of an epoch: `rows`, and `by_language` where small
languages are read more often than they are large (config.data.language_alpha).

A row follows from its number and the seed alone; nothing is counted while it is read. What is in
memory, labelled examples and documents, has an `order` of its own in every epoch.

A language with the share q of the rows is read with p ~ q^alpha (Devlin's multilingual BERT .7,
Conneau and Lample 2019); a plan's column `weight` says what a row counts, if not 1. Rows come in
blocks of one language. Every window of WINDOW blocks holds its rounded share of blocks of each
language, at least one, in an order of its own; a language's own rows come in a new order in each of
its epochs, so that small languages repeat rather than end.
"""

from typing import NamedTuple

import numpy as np

from bertjax.counter_rng import fold, permute, root

WINDOW = 1 << 14  # blocks


def rows(row_n: np.ndarray, rows: int, seed: int, shuffle: bool) -> tuple[np.ndarray, np.ndarray]:
  """Returns epoch and index of rows that are counted over all epochs of `rows`, both int64; with
  `shuffle` every epoch is permuted."""
  epoch_n, index_n = np.divmod(row_n, rows)
  return epoch_n, _permuted(root(seed, 'shuffle'), epoch_n, index_n, rows) if shuffle else index_n


def order(key_1: np.ndarray, size: int) -> np.ndarray:
  """Returns the numbers below `size` in an order that the key gives, int64 [size]."""
  return permute(np.repeat(key_1, size), np.arange(size), size)


def _permuted(key_1, epoch_n, index_n, size):
  return permute(fold(key_1, epoch_n), index_n, size)


class Schedule(NamedTuple):
  """The rows of each group, and how often each group comes."""

  row_n: np.ndarray  # int64 rows, group by group
  start_g: np.ndarray  # int64 [G + 1], the place in row_n at which each group begins
  blocks_g: np.ndarray  # int64 [G + 1], the same in a window of blocks
  block: int  # rows that share a group


def shares(rows_g: np.ndarray, alpha: float, blocks: int = WINDOW) -> np.ndarray:
  """Returns how many of the blocks go to each group: those of p ~ rows^alpha, rounded, int64 [G].
  `rows_g` may count something else than rows. A group with any gets at least one block, one with
  none none; what rounding leaves over or lacks is the most frequent group's."""
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


def by_language(row_n: np.ndarray, plan: Schedule, seed: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns the epoch of each row's group and the row, both int64, of rows counted from the
  start of the run."""
  block_n, within_n = np.divmod(row_n, plan.block)
  window_n, place_n = np.divmod(block_n, WINDOW)
  turn_n = _permuted(root(seed, 'languages'), window_n, place_n, WINDOW)
  group_n = np.searchsorted(plan.blocks_g, turn_n, 'right') - 1
  each_g, size_g = np.diff(plan.blocks_g), np.diff(plan.start_g)
  turn_n += window_n * each_g[group_n] - plan.blocks_g[group_n]
  epoch_n, index_n = np.divmod(turn_n * plan.block + within_n, size_g[group_n])
  key_1 = root(seed, 'shuffle')
  for group in np.unique(group_n):
    mine_n = group_n == group
    key_g, size = fold(key_1, group), int(size_g[group])
    index_n[mine_n] = _permuted(key_g, epoch_n[mine_n], index_n[mine_n], size)
  return epoch_n, plan.row_n[plan.start_g[group_n] + index_n]
