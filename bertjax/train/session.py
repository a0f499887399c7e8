"""A run under way: the state that its steps change, and all that is written of them.

loop.py says in which order; here is what each of its moves does.
"""

import contextlib
import math
import pathlib
from collections.abc import Mapping
from typing import Any

import jax

from bertjax.checkpoint import checkpoints as checkpoints_lib
from bertjax.checkpoint import finite, resume
from bertjax.errors import UserError
from bertjax.examples import loader, readers
from bertjax.machine import hosts, mirror
from bertjax.metrics import curves, goodput, ledger, tracking
from bertjax.metrics import interval as interval_lib
from bertjax.metrics import writer as metrics_writer
from bertjax.metrics.progress import Progress
from bertjax.sources import init_from
from bertjax.train import (
  digests,
  evaluation,
  first_state,
  patience,
  profile,
  report,
  setup,
  spikes,
  verification,
)
from bertjax.train.phase import Phase, columns
from bertjax.types import Batch


class Session:
  """A run from one start of the program on.

  Attributes:
    start: steps that were taken before it.
    state: after the last step.
    previous: the last step, its metrics (None of one that was left out) and its batch; None before
      the first.
    patience: counts the scores that are no better, see `config.best.patience`.
    verified: the check of the store's files, which goes on beside the steps.
  """

  def __init__(
    self,
    run: setup.Run,
    source: init_from.Source | None,
    place: mirror.Workdir,
    progress: Progress,
    stack: contextlib.ExitStack,
  ):
    """Takes the newest checkpoint, or begins anew.

    Args:
      run: before its first step.
      source: what it is to begin with, if that was opened.
      place: its workdir.
      progress: what shows lines.
      stack: closes what is opened here; the last good state is saved first, if an error ends it.
    """
    self._config = config = run.config
    self._run, self._place, self._progress = run, place, progress
    self._workdir = workdir = place.path
    self._checkpoints = checkpoints_lib.Checkpoints(
      pathlib.Path(workdir, 'checkpoints'), config.keep_checkpoints, config.best,
      lambda step: resume.note_saved(workdir, step), place,
    )  # fmt: skip
    stack.callback(self._checkpoints.close)
    self.start, self.state, meta = first_state.begin(
      run, source, self._checkpoints, progress, workdir
    )
    stack.callback(self._send)
    tracked = tracking.Trackers(config, workdir, progress.note)
    stack.callback(tracked.close)
    self._writer = metrics_writer.Writer(workdir, self.start, tracked, meta.get('metrics'))
    stack.callback(self._writer.close)
    self._starts = goodput.Record(workdir, self.start, progress.note)
    self._book = ledger.Ledger(jax.devices(), meta.get('ledger'))
    self._interval = interval_lib.Interval(meta.get('interval'))
    self._watch = spikes.Watch(
      workdir, run, meta.get('spikes'), progress.note, self._checkpoints.latest
    )
    self.patience = patience.Patience(config.best, meta.get('patience'))
    self._profile = profile.Profile(config.profile, workdir)
    stack.callback(self._profile.close)
    self.previous: tuple[int, Any, Batch] | None = None
    self.verified = stack.enter_context(verification.Verification(run, self.start, progress.note))
    stack.push(self._rescue)

  def catch_up(self) -> None:
    """Writes the scores of the checkpoint that it began with: they come after it, and a kill may
    have come between."""
    if not self.start:
      return
    known, last = self._checkpoints.scores(self.start), self.start == self._config.total_steps
    if known is not None:
      if last:
        known = self._with_rest(known)
      self._writer.write(self.start, known)
      self.patience.look(self.start, known)
    elif self.is_judged(self.start, last):
      self.evaluate(self.start, last)

  def _with_rest(self, known: dict[str, float]) -> dict[str, float]:
    """Adds the end-of-run evaluations to a step that only now turned out to be the last."""
    phases = self._run.judged(self._run.timeline.at(self.start - 1)[0])
    if not evaluation.lacking(phases, self._run.timeline.side_by_side, self.start, known):
      return known
    found = held_out_scores(
      self._run, self.start, True, self.state.variables, self._progress, before=known
    )
    self._checkpoints.score(self.start, found)
    return found

  def step(self, done: int) -> None:
    """Takes step number `done`, from 1."""
    self._profile.step(done)
    number, index = self._run.timeline.at(done - 1)
    phase = self._run.phases[number]
    with self._book.time('input'):
      batch, counts = phase.next_batch(index)
    self._compile(phase, batch)
    if index == 0:
      self.state = phase.enter(self.state)
    with self._book.time('compute'):
      if self._run.timeline.leaves_out(done):
        self._progress.note(f'Step {done}: its batch is left out (config.skip_steps)')
        self.state, found = phase.leave_out(self.state), None
      else:
        self.state, found = phase.train(self.state, batch)
      if done == self.start + 1:
        self._claim(done, found, batch)
      # One step late, so that the device never waits for the host.
      loss = self._watch.look(*self.previous) if self.previous else None
    self._progress.step(done, loss)
    if said := self._checkpoints.failure():
      self._progress.note(said)
    if found is None:
      self._interval.leave_out()
    else:
      self._interval.add(phase.name, found)
      self._book.count(counts, phase.objective.flops(batch))
    self.previous = (done, found, batch)

  def log(self, done: int) -> None:
    """Writes what the steps since the last call, until this one, have measured."""
    with self._book.time('compute'):
      if self.previous is not None:
        self._watch.look(*self.previous)
      finish = {p.name: p.objective.finish for p in self._run.phases}
      scalars = self._interval.close(finish, self._run.timeline.interleaved)
    scalars |= self._book.interval()
    self._writer.write(done, scalars)
    self._starts.update(done, scalars)
    self._progress.update(done, scalars)

  def save(self, wait: bool) -> None:
    """Saves the state after the last step.

    Args:
      wait: whether to return only when the checkpoint is complete.
    """
    assert self.previous is not None
    done, _, batch = self.previous
    self._watch.look(*self.previous)
    with self._book.time('checkpoint'):
      held = first_state.saved(self._config, self.state)
      self._watch.check(*self.previous, held)
      meta = dict(
        batch=first_state.batch_of(self._run, done),
        fed_sha256=hosts.gather(f'fed/{done}', loader.batch_sha256(batch)),
        replicas_sha256=digests.check_replicas(done, self.state.variables),
        interval=self._interval.state(), ledger=self._book.state(),
        vocabulary=self._run.store.meta['vocabulary']['sha256'],
        spikes=self._watch.state(), patience=self.patience.state(),
        metrics=self._writer.sync(done),
      )  # fmt: skip
      self._checkpoints.save(done, held, meta, wait=wait)

  def is_judged(self, done: int, last: bool) -> bool:
    """Returns whether an evaluation runs after a step."""
    return evaluation.due(self._run.judged(self._run.timeline.at(done - 1)[0]), done, last)

  def evaluate(self, done: int, last: bool) -> None:
    """Judges the state after a step; after its checkpoint, so that no failing evaluation costs
    that. Where it ends the run, all that was to be judged at the end is."""
    judge = lambda last, **more: held_out_scores(
      self._run, done, last, self.state.variables, self._progress, **more
    )
    with self._book.time('eval'):
      scores = judge(last)
      self.patience.look(done, scores)
      if self.patience.over and not last:
        scores = judge(True, before=scores)
    if self.patience.over and not last and done % self._config.log_steps:
      self.log(done)
    if self.patience.over and not self._checkpoints.has(done):
      self.save(wait=True)
    if self._checkpoints.has(done):
      self._checkpoints.score(done, scores)
    self._writer.write(done, scores)

  def finish(self) -> None:
    """Waits for the last save, and shows what the run was."""
    self._checkpoints.wait()
    done, early = self.previous[0] if self.previous else self.start, ''
    if done < self._config.total_steps:
      early = f'stopped early, after step {done} of {self._config.total_steps}'
      self._progress.note(f'{early.capitalize()}: {self.patience.said}')
      resume.note_stopped(self._workdir, done)
    self.verified.finish()
    self._progress.close()
    if self.previous is not None:  # evaluations and a checkpoint came after the last line
      self._starts.update(done, self._book.rest())
    self._book.print_summary()
    report.show_goodput(self._workdir)
    if self.previous is not None and jax.process_index() == 0:
      report.show(self._run, self._place.text, early)
      self._writer.close()
      try:
        curves.plot([self._workdir])
      except OSError as error:
        self._progress.note(f'curves.png was not drawn: {error}')

  def _compile(self, phase: Phase, batch: Batch) -> None:
    """Once for each length of rows, of which labelled ones have several."""
    if phase.takes(batch):
      return
    lengths = '-'.join(map(str, sorted({*columns(batch).values()})))
    own = f' for rows of {lengths}' if readers.of(phase.config.data).unit else ''
    self._progress.note(f'Compiling the train step of phase {phase.name!r}{own}')
    with self._book.time('compile'):
      phase.compile(self._run.abstract, batch)
      # Collectives of CPUs give up where one process begins 30 s after another.
      hosts.barrier(f'compiled/{phase.name}/{lengths}', math.inf)

  def _claim(self, done: int, found: Any, batch: Batch) -> None:
    """The first step has worked: from now on the workdir is this run's."""
    self._watch.check(done, found, batch, first_state.saved(self._config, self.state))
    facts = self._run.spec.facts.kept()
    changed = resume.claim_workdir(self._workdir, self._config, facts, self.start)
    self._writer.note(self.start, {metrics_writer.CHANGED: changed} if changed else {})
    resume.keep_vocabulary(self._workdir, self._run.vocabulary)
    resume.note_stopped(self._workdir, None)

  def _send(self) -> None:
    try:
      self._place.send()
    except (UserError, OSError) as error:
      self._progress.note(
        f'What was logged since the last checkpoint is in {self._workdir} alone: {error}'
      )

  def _rescue(self, kind: Any, error: BaseException | None, trace: Any) -> None:
    """Saves the last good state where an error ends the run; one process alone can."""
    del kind, trace
    spoiled = isinstance(error, (verification.Damaged, finite.NotFinite))
    if error is None or spoiled or hosts.count() > 1:
      return
    if self.previous is None or self._checkpoints.has(self.previous[0]):
      return
    gone = any(leaf.is_deleted() for leaf in jax.tree.leaves(self.state))
    if gone or int(self.state.step) != self.previous[0]:
      return  # the error came in the middle of a step
    if spikes.good(self.previous[1]):
      with contextlib.suppress(OSError):  # of a stdout that nobody reads, which may be the error
        self._progress.note(
          f'Saving step {self.previous[0]} on the way out of {type(error).__name__}'
        )
      try:
        self.save(wait=True)
      except Exception as second:
        self._progress.note(f'That failed too: {second}')


def held_out_scores(
  run: setup.Run, done: int, last: bool, variables: Any, progress: Progress,
  before: Mapping[str, float] | None = None,
) -> dict[str, float]:  # fmt: skip
  """Runs the evaluations that are due after a step and shows what they found.

  Args:
    run: of them.
    done: the number of the step.
    last: whether it is the last one.
    variables: to be judged.
    progress: what shows lines.
    before: scores already computed for this step; only the missing end-of-run sets are evaluated.
      None: none yet.

  Returns:
    name -> score, those of `before` among them.
  """
  rest = before is not None
  phases, side_by_side = run.judged(run.timeline.at(done - 1)[0]), run.timeline.side_by_side
  if last and (names := dict.fromkeys(s.name for phase in phases for s in phase.evals)):
    progress.note(f'Evaluating: {", ".join(names)}')  # all of them, which may take minutes
  scores, tables = evaluation.run(phases, side_by_side, variables, done, last, rest)
  scores |= evaluation.mean(run.config.best, {**(before or {}), **scores})
  shown = ', '.join(f'{k} {v:.4f}' for k, v in scores.items())
  if shown or not rest:
    progress.note(f'Step {done}: {shown or "nothing is held out to evaluate on"}')
  for table in tables:
    progress.show(table)
  return {**(before or {}), **scores}
