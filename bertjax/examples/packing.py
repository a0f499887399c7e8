"""Isolated packing: several short examples in one row, none attending to another.

Best-fit decreasing over a histogram of lengths ("longest-pack-first", Krell et al. 2021, "Efficient
Sequence Packing without Cross-contamination", algorithm 1): equal lengths are placed together, so
the work depends on the number of distinct lengths and not on the number of examples. Examples are
packed in windows of fixed size, which bounds the memory.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

WINDOW = 1 << 18  # examples


def pack(length_E: np.ndarray, capacity: int, max_examples: int) -> Iterator[tuple]:
  """Yields (example, count) of windows: int64 ids of the examples, row by row, and int64 examples
  per row, at most max_examples. `length_E`, tokens of each example, 1 to capacity, may be a memory
  map."""
  for base in range(0, len(length_E), WINDOW):
    window = np.asarray(length_E[base : base + WINDOW])
    if capacity < 1 << 16:
      window = window.astype(np.uint16)
    # NumPy sorts 16-bit integers by radix: the ids of each length, in order, lie side by side.
    by_length = np.argsort(window, kind='stable') + base
    histogram = np.bincount(window, minlength=capacity + 1)
    used = np.cumsum(histogram) - histogram
    for pattern, repeats in best_fit(histogram, max_examples):
      row = np.empty((repeats, len(pattern)), np.int64)
      for place, length in enumerate(pattern):
        row[:, place] = by_length[used[length] : used[length] + repeats]
        used[length] += repeats
      yield row.ravel(), np.full(repeats, len(pattern))


def best_fit(histogram: np.ndarray, max_examples: int) -> list[tuple[tuple[int, ...], int]]:
  """Packs a histogram of lengths, [capacity + 1], longest first, each into the fullest row that it
  fits; returns (lengths of a row, descending, number of such rows)."""
  capacity = len(histogram) - 1
  # Open rows by the room that is left; bit r of `rooms` says that there are some with room r, so
  # the best fit for a length is the lowest bit from there up.
  open_rows: list[list] = [[] for _ in range(capacity + 1)]
  rooms, closed = 0, []

  def put(pattern, repeats):
    room = capacity - sum(pattern)
    if room == 0 or len(pattern) == max_examples:
      closed.append((pattern, repeats))
      return 0
    open_rows[room].append((pattern, repeats))
    return 1 << room

  for length in range(capacity, 0, -1):
    left = int(histogram[length])
    while left:
      fitting = rooms >> length
      room, pattern, repeats = capacity, (), left
      if fitting:
        room = length + (fitting & -fitting).bit_length() - 1
        pattern, repeats = open_rows[room].pop()
      # The row stays the fullest that fits, so it takes the next one of this length as well.
      copies = min(room // length, max_examples - len(pattern), left)
      take = min(left // copies, repeats)
      if fitting and take < repeats:
        open_rows[room].append((pattern, repeats - take))
      if fitting and not open_rows[room]:
        rooms ^= 1 << room
      rooms |= put(pattern + (length,) * copies, take)
      left -= copies * take
  return closed + [row for rows in open_rows for row in rows]


def columns(
  length_E: np.ndarray, recipe: Any, capacity: int, size: Mapping[str, int]
) -> Iterator[tuple[dict[str, np.ndarray], dict]]:
  """Yields row_start and row_example of `Examples`, piece by piece, for a recipe whose rows hold so
  many tokens, or columns of each letter of `size`."""
  if recipe.masking.sizes:
    # An example counts as much of a row as the letter that it fills most.
    most = recipe.masking.sizes(recipe.mask_options, np.asarray(length_E, np.int64))
    share = [-(-value_E * capacity // size[letter]) for letter, value_E in most.items()]
    length_E = np.max([length_E, *share], 0)
  yield dict(row_start=np.zeros(1, np.int64)), {}
  packed = 0
  for example_n, count_n in pack(length_E, capacity, recipe.pack):
    stop_n = packed + np.cumsum(count_n)
    packed = int(stop_n[-1])
    yield dict(row_start=stop_n, row_example=example_n), {}
