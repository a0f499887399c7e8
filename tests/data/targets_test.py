"""What all corruptions share: rows' slots, budgets."""

import numpy as np
from masking import corrupted, count_of
from toy_store import random_store, recipe

from bertjax.data import targets


def test_a_rows_slots_are_shared_in_proportion_and_the_rest_is_counted():
  """Eight examples of 64 ask for 80 targets; a row of 512 has 77 slots."""
  counts = count_of(recipe(), [64] * 8)[0]
  assert sum(counts) == 77 and set(counts) == {9, 10}
  batch = corrupted(recipe(), random_store(3), [64] * 8, [0] * 8)
  assert batch['dropped_B'].tolist() == [3]
  row_E = np.array([0, 0, 1, 1, 1, 3])
  asked_E = np.array([3, 4, 40, 20, 40, 100])
  assert targets.share(asked_E, row_E, 50).tolist() == [3, 4, 20, 10, 20, 50]


def sequential_words(order, sizes, limit):
  """create_pretraining_data.py: groups in shuffled order, one that would overflow is skipped."""
  taken = []
  for group in order:
    if sum(sizes[g] for g in taken) + sizes[group] <= limit:
      taken.append(group)
  return taken


def test_words_are_taken_as_the_sequential_algorithm_takes_them():
  draw = np.random.default_rng(0)
  groups, examples = draw.integers(1, 40, 30), 30
  example_n = np.repeat(np.arange(examples), groups)
  size_n = draw.integers(1, 6, len(example_n))
  room_E = draw.integers(0, 30, examples)
  ours = sorted(targets.fit(example_n, size_n, room_E).tolist())
  theirs = []
  for e in range(examples):
    at = np.flatnonzero(example_n == e).tolist()
    theirs += sequential_words(at, size_n, room_E[e])
  assert ours == sorted(theirs)
