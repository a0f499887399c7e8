"""Everything that a run logs: metrics, time, tokens, speed; to files, trackers and the terminal."""

import contextlib
from typing import Any

import jax

from bertjax.machine import hosts
from bertjax.metrics import curves, interval, ledger, tracking, writer
from bertjax.metrics.progress import Progress
from bertjax.objectives import combine
from bertjax.train import setup
from bertjax.train.watch import Step, Watcher


class Record(Watcher):
  """The log of a run."""

  def __init__(self, run: setup.Run, workdir: str, start: int, meta: Any, progress: Progress):
    """Begins after so many steps, with what the checkpoint of that step has of `saved` in
    `meta`."""
    self._run, self._workdir, self._progress = run, workdir, progress
    with contextlib.ExitStack() as stack:
      tracked = tracking.Trackers(run.config, workdir, progress.note)
      stack.callback(tracked.close)
      self._writer = writer.Writer(workdir, start, tracked, meta.get('metrics'))
      stack.callback(self._writer.close)
      self._opened = stack.pop_all()
    self._ledger = ledger.Ledger(jax.devices(), meta.get('ledger'))
    self._interval = interval.Interval(_of_phases(run, meta.get('interval')))
    self.time = self._ledger.time
    self._said = False
    self.last_scores: dict[str, float] = {}
    self.close = self._opened.close

  def after(self, step: Step) -> None:
    """Counts a step; says of the first one that its batch has no target."""
    if step.found is None:
      self._interval.leave_out()
    else:
      self._interval.add(step.phase.name, step.found)
      self._ledger.count(step.counts, step.phase.objective.flops(step.batch))
      weighted = any('weight_B' in name for name in step.batch)
      if weighted and not (step.counts['predicted'] or self._said or _of_others(step.found)):
        self._said = True
        self._progress.note(
          f'Step {step.done}: nothing is to be predicted in its batch, which teaches nothing of '
          'the text; more such steps are not said. See how much is hidden (config.data.mask), and '
          'how many tokens and rows a step has (config.length, config.batch_size)'
        )

  def saved(self, step: Step, state: Any) -> dict[str, Any]:
    """Returns the sums and counts since the last line, and the number and digest of the lines so
    far."""
    return dict(
      interval=self._interval.state(),
      ledger=self._ledger.state(),
      metrics=self._writer.sync(step.done),
    )

  def log(self, done: int) -> None:
    """Writes what the steps since the last call, until this one, have measured."""
    with self.time('compute'):
      finish = {p.name: p.objective.finish for p in self._run.phases}
      scalars = self._interval.close(finish, self._run.timeline.interleaved)
    scalars |= self._ledger.interval()
    self._writer.write(done, scalars)
    self._progress.update(done, scalars)

  def scores(self, done: int, scores: dict[str, float]) -> None:
    """Writes the scores of the evaluations after a step."""
    self.last_scores = scores
    self._writer.write(done, scores)

  def changed(self, start: int, keys: dict[str, Any]) -> None:
    """Writes which keys of the config have changed after step `start`, if any."""
    self._writer.note(start, {writer.CHANGED: keys} if keys else {})

  def summary(self) -> None:
    """Prints where the time of this start went."""
    if table := self._ledger.summary():
      self._progress.show(table)

  def draw(self) -> None:
    """Closes the log and draws curves.png of it."""
    self._writer.close()
    try:
      curves.plot([self._workdir])
    except OSError as error:
      self._progress.note(f'curves.png was not drawn: {error}')


def _of_others(found: Any) -> bool:
  """Tells whether other processes have targets of a step."""
  return hosts.count() > 1 and any(weight for _, weight in jax.device_get(found['sums']).values())


def _of_phases(run: setup.Run, saved: Any) -> Any:
  """Returns what `Interval.state` has saved, also of a bertjax whose drawn tasks were phases."""
  sums = dict(saved['sums']) if saved else {}
  for phase in run.phases:
    parts = {p.name: sums.pop(p.name) for p in phase.parts if p.name in sums and p is not phase}
    if parts:
      sums[phase.name] = combine.join(parts)
  return saved and dict(saved, sums=sums)
