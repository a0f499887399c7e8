"""Timing of rival implementations in alternation, and what ran them."""

import contextlib
import functools
import importlib.metadata
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from bertjax.machine.pool import Pool

WARMUP = 3  # calls of each side that are not timed
QUEUE = 10  # calls that a device may have to do at once
PACKAGES = ('jax', 'jaxlib', 'numpy', 'torch', 'transformers', 'tokenizers', 'grain')


def alternate(
  arms: Mapping[str, Callable[[], Any]], calls: int, warmup: int
) -> dict[str, np.ndarray]:
  """Calls the arms in turn, ABAB, so that a drift of the machine hits all of them, after `warmup`
  calls of each that are not timed; a call returns when its work is done. Returns name -> seconds of
  each call, float64 [calls]."""
  seconds = {name: np.zeros(calls) for name in arms}
  for call in range(-warmup, calls):
    for name, arm in arms.items():
      start = time.perf_counter()
      arm()
      if call >= 0:
        seconds[name][call] = time.perf_counter() - start
  return seconds


def queued(arms: Mapping[str, Callable[[], Any]], calls: int) -> dict[str, float]:
  """Times, as `alternate` does, calls that a device may still be busy with when they return: a turn
  is QUEUE of them and the wait for the last, so that a device need not wait for the host. Returns
  name -> median seconds of a call."""

  def turn(arm: Callable[[], Any]) -> None:
    for _ in range(QUEUE - 1):
      arm()
    jax.block_until_ready(arm())

  turns = {name: functools.partial(turn, arm) for name, arm in arms.items()}
  seconds = alternate(turns, calls, WARMUP)
  return {name: float(np.median(each)) / QUEUE for name, each in seconds.items()}


@contextlib.contextmanager
def apart(make: Callable[..., Callable[[], Any]], *args: Any) -> Iterator[Callable[[], None]]:
  """Yields make(*args), a call, which is made and runs in a process of its own, so that two
  libraries share no threads. `make` stands at the top of a module, args are picklable; what either
  raises is raised here."""
  with Pool(1) as process:
    process.submit(_make, make, args).result()
    yield lambda: process.submit(_call).result()


_made: list[Callable[[], Any]] = []  # in the other process


def _make(make: Callable[..., Callable[[], Any]], args: tuple[Any, ...]) -> None:
  _made.append(make(*args))


def _call() -> None:
  _made[-1]()


def summary(seconds: np.ndarray, units: float, unit: str) -> dict[str, float]:
  """Median and 10/90 percentiles in seconds, and `<unit>_per_second` at the median."""
  low, median, high = np.percentile(seconds, [10, 50, 90])
  return {
    'median_s': round(median, 6),
    'p10_s': round(low, 6),
    'p90_s': round(high, 6),
    f'{unit}_per_second': round(units / median, 1),
  }


def environment() -> dict[str, Any]:
  """Python, package versions, processor and usable cores."""
  versions = {'python': platform.python_version()}
  for name in PACKAGES:
    try:
      versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      versions[name] = 'absent'
  return dict(versions=versions, hardware=_processor(), cores=len(os.sched_getaffinity(0)))


def _processor() -> str:
  with open('/proc/cpuinfo') as file:
    names = [line.split(':', 1)[1].strip() for line in file if line.startswith('model name')]
  return names[0] if names else platform.machine()
