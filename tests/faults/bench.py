"""Cases of faults, and what they need: an empty folder, and runs that nothing happens to.

A case does one thing to a run, or several in a row, and returns where all went as promised.
"""

import contextlib
import functools
import pathlib
import random
import subprocess
from collections.abc import Callable
from typing import NamedTuple

import cases
import processes

SECONDS = 300.0  # until a process that should end counts as one that never will


class Case(NamedTuple):
  """A fault: `work` does it in an empty folder, and checks what becomes of it."""

  group: str
  name: str
  work: Callable[['Bench'], None]


class Shared:
  """What all cases are compared with; made when first asked for."""

  def __init__(self, folder: pathlib.Path):
    self.folder = folder

  @functools.cached_property
  def store(self) -> pathlib.Path:
    """A small store; not to be changed."""
    cases.write_rich_store(self.folder / 'store')
    return self.folder / 'store'

  @functools.cached_property
  def straight(self) -> pathlib.Path:
    """The workdir of the run that nothing happens to."""
    workdir = self.folder / 'straight'
    done = processes.run(self.store, workdir)
    assert done.returncode == 0, done.stderr
    return workdir

  @functools.cached_property
  def pair(self) -> pathlib.Path:
    """The same in two processes."""
    workdir = self.folder / 'pair'
    with_all = processes.start_pair(self.store, workdir)
    assert [process.wait(SECONDS) for process in with_all] == [0, 0]
    return workdir


class Bench:
  """What one case works with: an empty folder, its own random numbers, and what it has started."""

  def __init__(self, folder: pathlib.Path, seed: str, shared: Shared):
    self.folder, self.shared, self.random = folder, shared, random.Random(seed)
    self.closing = contextlib.ExitStack()

  @property
  def store(self) -> pathlib.Path:
    return self.shared.store

  def watch(self, *started: subprocess.Popen) -> tuple[subprocess.Popen, ...]:
    """Sees to it that these processes end with the case."""
    for process in started:
      self.closing.callback(kill, process)
    return started


def kill(process: subprocess.Popen) -> None:
  if process.poll() is None:
    process.kill()
    process.wait()


def ended(process: subprocess.Popen, seconds: float = SECONDS) -> int:
  """The exit status of a process that is to end by itself; one that does not is killed."""
  try:
    return process.wait(seconds)
  finally:
    kill(process)


def log(workdir: pathlib.Path, process: int | None = None) -> str:
  """What a process of the run has said so far; see `processes.start` and `start_pair`."""
  path = pathlib.Path(f'{workdir}.log' if process is None else f'{workdir}.{process}.log')
  return path.read_text(encoding='utf-8', errors='replace') if path.exists() else ''


def bit_equal(workdir: pathlib.Path, straight: pathlib.Path) -> None:
  """Compares the metrics of two finished runs, all but times."""
  found, expected = processes.exact(workdir), processes.exact(straight)
  pairs = zip(found, expected, strict=False)
  first = next(((a, b) for a, b in pairs if a != b), None)
  assert found == expected, first or (len(found), len(expected))
