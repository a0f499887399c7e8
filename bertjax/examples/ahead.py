"""A function over a list, by several threads at once, in order and in bounded memory."""

import collections
import concurrent.futures
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

A = TypeVar('A')
B = TypeVar('B')
MOST = 8  # threads: each holds the arrays of one call


def in_order(function: Callable[[A], B], items: Iterable[A], threads: int = 0) -> Iterator[B]:
  """Yields function(item) of each item, in their order; `threads` 0 is one per core, 8 at most.
  NumPy lets other threads run while it works on an array, so calls that work on large arrays share
  the cores. At most `threads` + 1 results are in memory."""
  threads = threads or min(len(os.sched_getaffinity(0)), MOST)
  if threads == 1:
    yield from map(function, items)
    return
  pool = concurrent.futures.ThreadPoolExecutor(threads)
  waiting: collections.deque[concurrent.futures.Future[B]] = collections.deque()
  try:
    for item in items:
      waiting.append(pool.submit(function, item))
      if len(waiting) > threads:
        yield waiting.popleft().result()
    while waiting:
      yield waiting.popleft().result()
  finally:
    pool.shutdown(cancel_futures=True)
