"""The runs of a comparison: each in a directory, by one process of one machine at a time.

Several machines may share WORKDIR: a run is taken by who holds its lock, and nobody takes one that
is finished.
"""

import contextlib
import pathlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from bertjax.comparison import budget
from bertjax.comparison.plan import Asked, Planned
from bertjax.errors import amount
from bertjax.launch import grid, resumable
from bertjax.machine import locks
from bertjax.metrics import lines
from bertjax.metrics.progress import Bar

PEAK = 'optimizer.schedule.peak'
POLL_S = 5.0  # between two looks at runs of other machines, and of the bar at a run


class Run(NamedTuple):
  """A run of `bertjax.main`."""

  name: str  # for people
  directory: pathlib.Path
  flags: Sequence[str]  # besides --workdir
  seed: int
  arm: str
  job: grid.Job | None = None  # of pretraining

  @property
  def finished(self) -> bool:
    """True if its last checkpoint is there."""
    return resumable.finished(str(self.directory))

  @property
  def done(self) -> float:
    """The share of its steps that are logged; of fine-tuning 1 or 0."""
    if not self.job:
      return float(self.finished)
    logged = lines.of_run(self.directory)
    return logged[-1]['step'] / self.job.config.total_steps if logged else 0.0

  def beside(self, kind: str) -> pathlib.Path:
    """Returns the path of its log or its lock."""
    return self.directory.with_name(f'{self.directory.name}.{kind}')


def of_arm(asked: Asked, planned: Planned, workdir: pathlib.Path, more: Sequence[str]) -> list[Run]:
  """Returns the runs of an arm, seed by seed, each with all rates; `more` are flags of all runs."""
  arm, home = planned.arm, workdir / 'runs' / planned.arm.folder
  point = budget.point_of(arm, planned.steps, planned.store)
  config = grid.changed_by(arm.config, point, '--flops')
  flags = [*arm.flags, *(f'--config.{key}={value}' for key, value in point.items())]
  flags += [f'--config.name={arm.name}', *more]
  return [
    Run(
      f'{arm.name}, {job.name}',
      home / job.name,
      [*flags, *job.flags],
      job.config.seed,
      arm.name,
      job,
    )
    for job in grid.jobs(config, [f'{PEAK}={",".join(asked.peaks(arm))}'], asked.seeds)
  ]


def train(runs: Sequence[Run]) -> list[Run]:
  """Trains what is not finished; returns as `divided`. Raises UserError if a signal has stopped a
  run."""
  flags = lambda run: [*run.flags, f'--workdir={run.directory}']
  status = lambda run: resumable.run(flags(run), run.beside('log'), run.name)
  share = lambda run: run.done
  return divided('compare', runs, lambda run: run.finished, status, share)


def divided(
  title: str,
  runs: Sequence[Run],
  done: Callable[[Run], bool],
  do: Callable[[Run], int],
  share: Callable[[Run], float],
) -> list[Run]:
  """Does for each run what is not done, here or by others who share the directory; returns the runs
  that failed here, where `do` was not 0, each tried once. A bar shows the `share` of each."""
  failed: dict[str, Run] = {}
  with Bar(title) as bar:
    while left := [run for run in runs if not done(run) and run.name not in failed]:
      for run in left:
        run.directory.parent.mkdir(parents=True, exist_ok=True)
        with locks.tried(run.beside('lock')) as ours, _shown(bar, runs, share, run):
          if ours and not done(run) and do(run):
            failed[run.name] = run
      if not any(locks.is_free(run.beside('lock')) for run in left):
        time.sleep(POLL_S)
  return [*failed.values()]


@contextlib.contextmanager
def _shown(
  bar: Bar, runs: Sequence[Run], share: Callable[[Run], float], now: Run
) -> Iterator[None]:
  """Moves the bar over all runs while something is done for one."""
  over = threading.Event()

  def show() -> None:
    while not over.wait(POLL_S):
      shares = [share(run) for run in runs]
      of = f'{shares.count(1.0)} of {amount(len(runs), "runs")}'
      bar.show(f'{of}, {now.name}', sum(shares) / len(shares))

  thread = threading.Thread(target=show, daemon=True)
  thread.start()
  try:
    yield
  finally:
    over.set()
    thread.join()
