"""THE loop, told in order: `run` opens a workdir, and `Session` trains there from start to end.

It knows systems only through `types.Objective`. opening.py has what is fixed before the first step,
first_state.py the state to begin with, phase.py a phase's compiled step and batches, evaluation.py
what judges the model, and watch/ whatever looks on: all of it is in `Session.watchers`.
"""

import contextlib
import json
import math
import pathlib
from collections.abc import Collection, Sequence
from typing import Any

import jax

from bertjax import registry
from bertjax.checkpoint import checkpoints as checkpoints_lib
from bertjax.checkpoint import finite, reading, resume
from bertjax.config import sections
from bertjax.errors import UserError
from bertjax.machine import checksums, hosts, mirror
from bertjax.machine.stop import Stop
from bertjax.metrics.progress import Progress
from bertjax.optim import averaging
from bertjax.sources import init_from
from bertjax.train import evaluation, first_state, opening, report, setup
from bertjax.train.phase import Phase, columns
from bertjax.train.watch import Step, Watcher
from bertjax.train.watch.digests import Digests
from bertjax.train.watch.patience import Patience
from bertjax.train.watch.profile import Profile
from bertjax.train.watch.record import Record
from bertjax.train.watch.spikes import Spikes, good
from bertjax.train.watch.verification import Damaged, Verification
from bertjax.types import Batch


def run(
  config: Any, workdir: str, overrides: Sequence[str] = (), given: Collection[str] = ()
) -> None:
  """Trains until config.total_steps, from the newest checkpoint in the workdir if there is one.
  `overrides` are keys that may have other values than they had so far; `given` those that stand
  against a preset, minutes and epochs, as the keys of the command line do."""
  registry.note_own(config)
  sections.complete(config)
  hosts.introduce()
  progress = Progress(config.total_steps)
  with Stop(progress.note) as stop, contextlib.ExitStack() as stack:
    stack.callback(progress.close)
    place = mirror.Workdir(workdir, progress.note)
    pathlib.Path(place.path).mkdir(parents=True, exist_ok=True)
    stack.enter_context(resume.alone_in(place.path))
    place.fetch()
    stack.enter_context(opening.nothing_left(config.data, pathlib.Path(place.path)))
    for line in resume.check_history(place.path):
      progress.note(line)
    run, source = opening.open_run(config, place, progress, given, overrides)
    progress.expect(run.config.total_steps)
    session = Session(run, source, place, progress, stop, stack)
    del source  # it may hold a whole model
    session.train()


class Session:
  """A run from one start of the program on; its methods stand in the order of their calls."""

  def __init__(
    self,
    run: setup.Run,
    source: init_from.Source | None,
    place: mirror.Workdir,
    progress: Progress,
    stop: Stop,
    stack: contextlib.ExitStack,
  ):
    """Takes the newest checkpoint, or begins anew, with the source if that was opened. The stack
    closes what is opened here; the last good state is saved first, if an error ends it."""
    self._config = config = run.config
    self._run, self._place = run, place
    self._progress, self._stop = progress, stop
    self._workdir = workdir = place.path
    self._checkpoints = checkpoints_lib.Checkpoints(
      pathlib.Path(workdir, 'checkpoints'), config.keep_checkpoints, config.best,
      lambda step: resume.note_saved(workdir, step), place,
    )  # fmt: skip
    stack.callback(self._checkpoints.close)
    self._start, self._state, meta = first_state.begin(
      run, source, self._checkpoints, progress, workdir
    )
    stack.callback(self._send)
    self._record = Record(run, workdir, self._start, meta, progress)
    stack.callback(self._record.close)
    self._spikes = Spikes(workdir, run, meta.get('spikes'), progress.note, self._checkpoints.latest)
    self._patience = Patience(config.best, meta.get('patience'), config.optimizer.average)
    self._verification = Verification(run, self._start, stop, progress.note)
    profile = Profile(config.profile, workdir)
    stack.callback(profile.close)
    self.watchers: list[Watcher] = [
      self._spikes, self._verification, profile, self._record, self._patience, Digests(run),
    ]  # fmt: skip
    self._last: Any = None  # the last Step of this start, if any
    stack.push(self._rescue)

  def train(self) -> None:
    """Takes all steps that are left, with logs, checkpoints and evaluations between them."""
    self._catch_up()
    config = self._config
    for done in range(self._start + 1, config.total_steps + 1):
      if self._patience.over:
        break
      self._take(done)
      last, leaving = done == config.total_steps, self._stop.at(done)
      if done % config.log_steps == 0 or last:
        self._log(done)
      if done % config.checkpoint_steps == 0 or last or leaving:
        self._save(wait=last or leaving)
      if leaving and not last:
        self._progress.note(
          f'Stopped by {self._stop.reason} after step {done}; the same command resumes'
        )
        return
      if evaluation.due(self._run.evals(done), done, last):
        self._evaluate(done, last)
    self._finish()

  def _catch_up(self) -> None:
    """Writes the scores of the checkpoint that it began with: they come after it, and a kill may
    have come between."""
    done, last = self._start, self._start == self._config.total_steps
    if not done:
      return
    if (scores := self._checkpoints.scores(done)) is None:
      if evaluation.due(self._run.evals(done), done, last):
        self._evaluate(done, last)
      return
    if last and evaluation.lacking(self._run.evals(done), done, scores):
      scores = self._scores(done, True, scores)  # it only now turns out to be the last step
      self._checkpoints.score(done, scores)
    self._record.scores(done, scores)
    self._judge(done, scores)

  def _take(self, done: int) -> None:
    """Takes step number `done`, from 1."""
    for watcher in self.watchers:
      watcher.before(done)
    phase, index = self._run.at(done)
    with self._record.time('input'):
      batch, counts = phase.next_batch(index)
    self._compile(phase, index, batch)
    if index == 0:
      self._state = phase.enter(self._state)
    with self._record.time('compute'):
      if self._run.timeline.leaves_out(done):
        self._progress.note(f'Step {done}: its batch is left out (config.skip_steps)')
        self._state, found = phase.leave_out(self._state), None
      else:
        self._state, found = phase.train(self._state, batch)
      step = Step(done, phase, index, found, batch, counts)
      for watcher in self.watchers:
        watcher.after(step)
      if done == self._start + 1:
        self._claim(step)
    self._last = step
    self._progress.step(done, self._spikes.loss)
    if said := self._checkpoints.failure():
      self._progress.note(said)

  def _compile(self, phase: Phase, index: int, batch: Batch) -> None:
    """Once for each length of rows, of which labelled ones and AWD-LSTM's have several."""
    if phase.takes(batch):
      return
    name, lengths = phase.place(index).name, '-'.join(map(str, sorted({*columns(batch).values()})))
    self._progress.note(f'Compiling the train step of phase {name!r} for rows of {lengths}')
    with self._record.time('compile'):
      phase.compile(self._run.abstract, batch)
      # Collectives of CPUs give up where one process begins 30 s after another.
      hosts.barrier(f'compiled/{name}/{lengths}', math.inf)

  def _claim(self, step: Step) -> None:
    """Claims the workdir for this run, whose first step has worked."""
    self._spikes.saved(step, first_state.saved(self._run, self._state))
    facts = self._run.spec.facts.kept()
    changed = resume.claim_workdir(self._workdir, self._config, facts, self._start)
    self._record.changed(self._start, changed)
    resume.keep_vocabulary(self._workdir, self._run.vocabulary)
    resume.note_stopped(self._workdir, None)

  def _log(self, done: int) -> None:
    with self._record.time('compute'):
      self._spikes.judge()
    self._record.log(done)

  def _save(self, wait: bool) -> None:
    """Saves the state after the last step; with `wait` it returns when the checkpoint is there."""
    self._spikes.judge()
    with self._record.time('checkpoint'):
      step, held, meta = self._last, first_state.saved(self._run, self._state), {}
      for watcher in self.watchers:
        meta |= watcher.saved(step, held)
      self._checkpoints.save(step.done, held, meta, wait=wait)

  def _scores(self, done: int, last: bool, before: dict[str, float] | None) -> dict[str, float]:
    variables = averaging.exchanged(self._state).variables
    return evaluation.scores(self._run, done, last, variables, self._progress, before)

  def _judge(self, done: int, scores: dict[str, float]) -> None:
    """Lets the scores of a step decide whether it is the last one, and those after it averaged."""
    averaged = self._patience.averages
    self._patience.look(done, scores)
    if self._patience.averages:
      self._state = averaging.begun(self._state)
      if not averaged:
        self._progress.note(f'Steps after {done} are averaged (config.optimizer.average)')

  def _evaluate(self, done: int, last: bool) -> None:
    """Judges the state after a step; after its checkpoint, so that no failing evaluation costs
    that. Where it ends the run, all that was to be judged at the end is."""
    with self._record.time('eval'):
      scores = self._scores(done, last, None)
      self._judge(done, scores)
      early = self._patience.over and not last
      if early:
        scores = self._scores(done, True, scores)
    if early and done % self._config.log_steps:
      self._log(done)
    if self._patience.over and not self._checkpoints.has(done):
      self._save(wait=True)
    if self._checkpoints.has(done):
      self._checkpoints.score(done, scores)
    self._record.scores(done, scores)

  def _finish(self) -> None:
    """Waits for the last save, and shows what the run was."""
    self._checkpoints.wait()
    done, early = self._last.done if self._last else self._start, ''
    if done < self._config.total_steps:
      early = f'stopped early, after step {done} of {self._config.total_steps}'
      self._progress.note(f'{early.capitalize()}: {self._patience.said}')
      resume.note_stopped(self._workdir, done)
    elif self._last is None:
      self._progress.note(
        f'The run is finished: all {done} steps are taken; a larger --config.total_steps goes on'
      )
    self._verification.finish()
    self._progress.close()
    self._record.summary()
    if jax.process_index() == 0:  # also where a kill came during the last line
      self._record.draw()
      report.show(self._run, self._place.text, early, self._record.last_scores)

  def _send(self) -> None:
    """Sends what was logged to where the workdir is, at the end."""
    try:
      self._place.send()
    except (UserError, OSError) as error:
      self._progress.note(
        f'What was logged since the last checkpoint is in {self._workdir} alone: {error}'
      )

  def _rescue(self, kind: Any, error: BaseException | None, trace: Any) -> None:
    """Saves the last good state where an error ends the run; one process alone can."""
    spoiled, last = isinstance(error, Damaged | finite.NotFinite), self._last
    if error is None or spoiled or hosts.count() > 1:
      return
    if last is None or self._checkpoints.has(last.done) or not good(last.found):
      return
    gone = any(leaf.is_deleted() for leaf in jax.tree.leaves(self._state))
    if gone or int(self._state.step) != last.done:
      return  # the error came in the middle of a step
    with contextlib.suppress(OSError):  # of a stdout that nobody reads, which may be the error
      self._progress.note(f'Saving step {last.done} on the way out of {type(error).__name__}')
    try:
      self._save(wait=True)
    except Exception as second:
      self._progress.note(f'That failed too: {second}')


def evaluate(
  config: Any, workdir: str, step: str | None = None, given: Collection[str] | None = None
) -> None:
  """Prints the held-out scores of a checkpoint of the workdir, by its step or 'best' by
  `config.best`, None: the newest intact one, as one JSON line; null: no number. What differs of the
  config from that of the run is said; `given` is as of `run`; None: the config is resolved."""
  chosen = reading.as_step(step)
  progress = Progress(config.total_steps)
  place = mirror.Workdir(workdir, progress.note, reads=True)
  place.fetch()
  for line in resume.overrides(place.path, config):
    progress.note(f'For this evaluation {line}')
  run, _ = opening.open_run(config, place, progress, given)
  directory = reading.choose(place.path, chosen, config.best, place.fetch_checkpoint)
  record = dict(manifest=checksums.of_file(directory / mirror.MANIFEST))
  hosts.require_same('the checkpoint', record, 'give all the same --workdir')
  abstract = first_state.saved(run, run.abstract).variables
  variables = first_state.with_teacher(run, reading.read_variables(directory, abstract))
  scores = evaluation.scores(run, int(directory.name), True, variables, progress)
  if jax.process_index() == 0:
    numbers = {name: score if math.isfinite(score) else None for name, score in scores.items()}
    print(json.dumps(dict(checkpoint=str(directory), **numbers)))
