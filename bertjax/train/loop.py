"""THE loop: store, run, state, restore, then steps with log, evaluation and checkpoints, in order.

It knows systems only through `types.Objective`. What is fixed before the first step is opened in
opening.py and made in setup.py; first_state.py has what a run begins with, phase.py the compiled
step and the batches of a phase, evaluation.py what judges it, spikes.py what becomes of a step that
is not finite.
"""

import contextlib
import json
import math
import pathlib
from collections.abc import Sequence
from typing import Any

import jax

from bertjax import hosts, mirror
from bertjax.checkpoint import checkpoints as checkpoints_lib
from bertjax.checkpoint import reading, resume
from bertjax.data import loader
from bertjax.metrics import curves, goodput, ledger, tracking
from bertjax.metrics import interval as interval_lib
from bertjax.metrics import writer as metrics_writer
from bertjax.metrics.progress import Progress
from bertjax.train import (
  digests,
  evaluation,
  first_state,
  opening,
  report,
  setup,
  spikes,
  verification,
)
from bertjax.train.stop import Stop


def profile_window(window: Any, done: int, workdir: str) -> None:
  """Traces `config.profile.steps` steps from `config.profile.start` on, into workdir/profile."""
  if window.steps and done == window.start:
    jax.profiler.start_trace(pathlib.Path(workdir, 'profile'))
  if window.steps and done == window.start + window.steps:
    jax.profiler.stop_trace()


def held_out_scores(
  run: setup.Run, done: int, last: bool, variables: Any, progress: Progress
) -> dict[str, float]:
  """Runs the evaluations that are due after a step and shows what they found."""
  phases = run.judged(run.timeline.at(done - 1)[0])
  scores, tables = evaluation.run(phases, run.timeline.side_by_side, variables, done, last)
  shown = ', '.join(f'{k} {v:.4f}' for k, v in scores.items())
  progress.note(f'Step {done}: {shown or "nothing is held out to evaluate on"}')
  for table in tables:
    progress.show(table)
  return scores


def run(config: Any, workdir: str, overrides: Sequence[str] = ()) -> None:
  """Trains until config.total_steps, from the newest checkpoint in the workdir if there is one.

  Args:
    config: of the run.
    workdir: of the run.
    overrides: keys that may have other values than they had so far, see `resume.check_workdir`.
  """
  hosts.introduce()
  progress = Progress(config.total_steps)
  with Stop(progress.note) as stop, contextlib.ExitStack() as stack:
    stack.callback(progress.close)
    place = mirror.Workdir(workdir, progress.note)
    pathlib.Path(place.path).mkdir(parents=True, exist_ok=True)
    stack.enter_context(resume.alone_in(place.path))
    place.fetch()
    _run(config, place, overrides, progress, stop, stack)


def _run(
  config: Any,
  place: mirror.Workdir,
  overrides: Sequence[str],
  progress: Progress,
  stop: Stop,
  stack: contextlib.ExitStack,
) -> None:
  workdir = place.path
  for line in resume.check_workdir(workdir, config, overrides):
    progress.note(line)
  for note in resume.check_history(workdir):
    progress.note(note)
  run, source = opening.open_run(config, place, progress)

  checkpoints = checkpoints_lib.Checkpoints(
    pathlib.Path(workdir, 'checkpoints'), config.keep_checkpoints, config.best,
    lambda step: resume.note_saved(workdir, step), place,
  )  # fmt: skip
  stack.callback(checkpoints.close)
  start, state, meta = first_state.begin(config, run, source, checkpoints, progress, workdir)
  del source  # it may hold a whole model

  def send() -> None:
    try:
      place.send()
    except Exception as error:
      progress.note(f'What was logged since the last checkpoint is in {workdir} alone: {error}')

  stack.callback(send)
  if late := resume.trained_already(workdir, run.config, start):
    progress.note(f'Left out too late, step {start} was taken: {late} of config.skip_steps')
  tracked = tracking.Trackers(config, workdir, progress.note)
  stack.callback(tracked.close)
  writer = metrics_writer.Writer(workdir, start, tracked)
  stack.callback(writer.close)
  starts = goodput.Record(workdir, start, progress.note)
  book = ledger.Ledger(jax.devices(), meta.get('ledger'))
  interval = interval_lib.Interval(meta.get('interval'))
  watch = spikes.Watch(workdir, run, meta.get('spikes'), progress.note, checkpoints.latest)
  previous = None
  verified = stack.enter_context(verification.Verification(run, start, progress.note))

  def evaluate(done: int, last: bool) -> None:
    """After the checkpoint of the step, so that no failing evaluation costs it."""
    with book.time('eval'):
      scores = held_out_scores(run, done, last, state.variables, progress)
    if checkpoints.has(done):
      checkpoints.score(done, scores)
    writer.write(done, scores)

  def save(done: int, wait: bool) -> None:
    with book.time('checkpoint'):
      meta = dict(
        batch=first_state.batch_of(run, done),
        fed_sha256=hosts.gather(f'fed/{done}', loader.batch_sha256(batch)),
        replicas_sha256=digests.check_replicas(done, state.variables),
        interval=interval.state(), ledger=book.state(),
        vocabulary=run.store.meta['vocabulary']['sha256'],
        spikes=watch.state(),
      )  # fmt: skip
      writer.sync()
      checkpoints.save(done, first_state.saved(config, state), meta, wait=wait)

  def rescue(kind: Any, error: BaseException | None, trace: Any) -> None:
    """Saves the last good state where an error ends the run; one process alone can."""
    del kind, trace
    if error is None or isinstance(error, verification.Damaged) or hosts.count() > 1:
      return
    if previous is None or checkpoints.has(previous[0]):
      return
    if any(leaf.is_deleted() for leaf in jax.tree.leaves(state)) or int(state.step) != previous[0]:
      return  # the error came in the middle of a step
    if spikes.good(previous[1]):
      progress.note(f'Saving step {previous[0]} on the way out of {type(error).__name__}')
      try:
        watch.look(*previous)
        save(previous[0], wait=True)
      except Exception as second:
        progress.note(f'That failed too: {second}')

  stack.push(rescue)
  if start:  # the scores of that step come after its checkpoint: a kill may have come between
    known, last = checkpoints.scores(start), start == config.total_steps
    if known is not None:
      writer.write(start, known)
    elif evaluation.due(run.judged(run.timeline.at(start - 1)[0]), start, last):
      evaluate(start, last)

  for done in range(start + 1, config.total_steps + 1):
    profile_window(config.profile, done, workdir)
    number, index = run.timeline.at(done - 1)
    phase = run.phases[number]
    if not phase.compiled:
      progress.note(f'Compiling the train step of phase {phase.name!r}')
      with book.time('compile'):
        phase.compile(run.abstract)
        # Collectives of CPUs give up where one process begins 30 s after another.
        hosts.barrier(f'compiled/{phase.name}', math.inf)
    if index == 0:
      state = phase.enter(state)
    with book.time('input'):
      batch, counts = phase.next_batch(index)
    with book.time('compute'):
      if run.timeline.leaves_out(done):
        progress.note(f'Step {done}: its batch is left out (config.skip_steps)')
        state, found = phase.leave_out(state), None
      else:
        state, found = phase.train(state, batch)
      if done == start + 1:  # it has worked once: from now on the workdir is this run's
        watch.look(done, found, batch)
        changed = resume.claim_workdir(workdir, config, run.config, start)
        writer.note(start, {metrics_writer.CHANGED: changed} if changed else {})
        resume.keep_vocabulary(workdir, run.vocabulary)
      # One step late, so that the device never waits for the host.
      loss = watch.look(*previous) if previous else None
    progress.step(done, loss)
    if said := checkpoints.failure():
      progress.note(said)
    if found is None:
      interval.leave_out()
    else:
      interval.add(phase.name, found)
      book.count(counts, phase.objective.flops(batch))
    previous = (done, found, batch)
    last, leaving = done == config.total_steps, stop.at(done)
    verified.check(stop, leaving)

    if done % config.log_steps == 0 or last:
      with book.time('compute'):
        watch.look(done, found, batch)
        finish = {p.name: p.objective.finish for p in run.phases}
        scalars = interval.close(finish, run.timeline.interleaved)
      scalars |= book.interval()
      writer.write(done, scalars)
      starts.update(done, scalars)
      progress.update(done, scalars)
    if done % config.checkpoint_steps == 0 or last or leaving:
      watch.look(done, found, batch)
      save(done, wait=last or leaving)
    if leaving and not last:
      progress.note(f'Stopped by {stop.reason} after step {done}; the same command resumes')
      return
    if evaluation.due(run.judged(number), done, last):
      evaluate(done, last)

  checkpoints.wait()
  verified.finish()
  progress.close()
  book.print_summary()
  report.show_goodput(workdir)
  if start < config.total_steps and jax.process_index() == 0:
    report.show(place.text)
    writer.close()
    try:
      curves.plot([workdir])
    except OSError as error:
      progress.note(f'curves.png was not drawn: {error}')


def evaluate(config: Any, workdir: str) -> None:
  """Prints the held-out scores of the workdir's newest intact checkpoint as one JSON line.

  Args:
    config: that of the run, see `resume.stored_config`; what differs from it is said.
    workdir: of the run.
  """
  progress = Progress(config.total_steps)
  place = mirror.Workdir(workdir, progress.note, reads=True)
  place.fetch()
  for line in resume.overrides(place.path, config):
    progress.note(f'For this evaluation {line}')
  run, _ = opening.open_run(config, place, progress)
  directory = reading.newest(place.path, place.fetch_checkpoint)
  abstract = first_state.saved(run.config, run.abstract).variables
  variables = first_state.with_teacher(run, reading.read_variables(directory, abstract))
  done = int(directory.name)
  scores = held_out_scores(run, done, True, variables, progress)
  if jax.process_index() == 0:
    print(json.dumps(dict(checkpoint=str(directory), **scores)))
