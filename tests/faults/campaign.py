"""What a fault campaign is made of: cases, what becomes of them, and what they need.

A case does one thing to a run, or several in a row, and returns where all went as promised. What it
raises says what did not: `Silent`, where something is wrong and nothing said so; `Deadlock` or the
timeout of a process, where nothing goes on; anything else, where it was told but not as promised.
"""

import contextlib
import functools
import pathlib
import random
import subprocess
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import cases
import processes

SECONDS = 300.0  # until a process that should end counts as one that never will


class Silent(AssertionError):
  """Something is wrong, and nothing said so."""


class Deadlock(AssertionError):
  """Nothing goes on."""


class Skipped(Exception):
  """This machine cannot do it: says why."""


class Case(NamedTuple):
  """Faults that are tried together.

  Attributes:
    group: the row of the table.
    name: what is done.
    work: does it in an empty folder, and checks what becomes of it.
    tries: how many faults that is.
  """

  group: str
  name: str
  work: Callable[['Bench'], None]
  tries: int = 1


class Outcome(NamedTuple):
  """What became of a case; `kind` is a key of KINDS."""

  case: Case
  kind: str
  said: str
  seconds: float


KINDS = dict(
  promised='as promised', silent='silently wrong', deadlock='deadlock', other='otherwise wrong',
  skipped='not tried',
)  # fmt: skip


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
    folder.mkdir(parents=True)
    self.folder, self.shared, self.random = folder, shared, random.Random(seed)
    self._started: list[subprocess.Popen] = []
    self.closing = contextlib.ExitStack()

  @property
  def store(self) -> pathlib.Path:
    return self.shared.store

  def watch(self, *started: subprocess.Popen) -> tuple[subprocess.Popen, ...]:
    """Sees to it that these processes end with the case."""
    self._started += started
    return started

  def close(self) -> None:
    """Ends what is left."""
    for process in self._started:
      if process.poll() is None:
        process.kill()
        process.wait()
    self.closing.close()


def ended(process: subprocess.Popen, seconds: float = SECONDS) -> int:
  """The exit status of a process that is to end by itself.

  Raises:
    Deadlock: it does not.
  """
  try:
    return process.wait(seconds)
  except subprocess.TimeoutExpired:
    process.kill()
    process.wait()
    raise Deadlock(f'no end after {seconds:g} s: {process.args}') from None


def log(workdir: pathlib.Path, process: int | None = None) -> str:
  """What a process of the run has said so far; see `processes.start` and `start_pair`."""
  path = pathlib.Path(f'{workdir}.log' if process is None else f'{workdir}.{process}.log')
  return path.read_text(encoding='utf-8', errors='replace') if path.exists() else ''


def bit_equal(workdir: pathlib.Path, straight: pathlib.Path) -> None:
  """Compares the metrics of two finished runs, all but times.

  Raises:
    Silent: they differ.
  """
  found, expected = processes.exact(workdir), processes.exact(straight)
  if found != expected:
    pairs = zip(found, expected, strict=False)
    first = next(((a, b) for a, b in pairs if a != b), (len(found), len(expected)))
    raise Silent(f'metrics differ from those of the uninterrupted run: {first}')


def tried(case: Case, folder: pathlib.Path, seed: str, shared: Shared) -> Outcome:
  """Runs a case."""
  bench, start, said = Bench(folder, seed, shared), time.monotonic(), ''
  try:
    case.work(bench)
    kind = 'promised'
  except Skipped as reason:
    kind, said = 'skipped', str(reason)
  except Silent as error:
    kind, said = 'silent', str(error)
  except (Deadlock, subprocess.TimeoutExpired) as error:
    kind, said = 'deadlock', str(error)
  except Exception:
    kind, said = 'other', traceback.format_exc()
  finally:
    bench.close()
  return Outcome(case, kind, said, time.monotonic() - start)


def campaign(
  chosen: Iterable[Case], folder: pathlib.Path, seed: int, say: Callable[[str], None]
) -> Iterator[Outcome]:
  """Runs cases one after the other and shows each.

  Args:
    chosen: of them.
    folder: for their files; what went as promised is removed from it by the caller.
    seed: of the random moments; that of a case is this and its name.
    say: shows a line.
  """
  shared = Shared(folder)
  for number, case in enumerate(chosen):
    outcome = tried(case, folder / f'case{number}', f'{seed} {case.name}', shared)
    say(f'{KINDS[outcome.kind]:15} {outcome.seconds:6.1f} s  {case.group}: {case.name}')
    if outcome.said:
      say(f'  {outcome.said}')
    yield outcome


def table(outcomes: Iterable[Outcome]) -> str:
  """The outcomes as a table in Markdown, a row for each group."""
  groups: dict[str, dict[str, int]] = {}
  for outcome in outcomes:
    row = groups.setdefault(outcome.case.group, dict.fromkeys(KINDS, 0))
    row[outcome.kind] += outcome.case.tries
  total = {kind: sum(row[kind] for row in groups.values()) for kind in KINDS}
  head = ['what was done', 'tried', *KINDS.values()]
  lines = [head, ['---', *['---:'] * (len(head) - 1)]]
  for name, row in [*groups.items(), ('**all**', total)]:
    tries = sum(row.values()) - row['skipped']
    lines.append([name, str(tries), *map(str, row.values())])
  return '\n'.join(f'| {" | ".join(line)} |' for line in lines) + '\n'
