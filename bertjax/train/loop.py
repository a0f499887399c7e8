"""THE loop: store, run, state, restore, then steps with log, evaluation and checkpoints, in order.

It knows systems only through `types.Objective`. What is fixed before the first step is opened in
opening.py and made in setup.py; first_state.py has what a run begins with, session.py what each
move of the loop does, phase.py the compiled step and the batches of a phase, evaluation.py what
judges it, spikes.py what becomes of a step that is not finite.
"""

import contextlib
import json
import math
import pathlib
import shutil
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import jax

from bertjax import registry
from bertjax.checkpoint import reading, resume
from bertjax.errors import UserError
from bertjax.machine import checksums, hosts, mirror
from bertjax.machine.stop import Stop
from bertjax.metrics.progress import Progress
from bertjax.train import first_state, opening
from bertjax.train.session import Session, held_out_scores


def run(
  config: Any, workdir: str, overrides: Sequence[str] = (), given: Collection[str] | None = None
) -> None:
  """Trains until config.total_steps, from the newest checkpoint in the workdir if there is one.

  Args:
    config: of the run.
    workdir: of the run.
    overrides: keys that may have other values than they had so far.
    given: keys of the command line, which stand against a preset, minutes and epochs; None: all
      values of the config stand.
  """
  registry.note_own(config)
  hosts.introduce()
  progress = Progress(config.total_steps)
  with Stop(progress.note) as stop, contextlib.ExitStack() as stack:
    stack.callback(progress.close)
    place = mirror.Workdir(workdir, progress.note)
    pathlib.Path(place.path).mkdir(parents=True, exist_ok=True)
    stack.enter_context(resume.alone_in(place.path))
    place.fetch()
    stack.enter_context(_nothing_left(config.data, pathlib.Path(place.path)))
    _run(config, place, overrides, given, progress, stop, stack)


@contextlib.contextmanager
def _nothing_left(data: Any, workdir: pathlib.Path) -> Iterator[None]:
  """Removes the files of a run that fails before its first step. What took a while to make, a store
  or a trained vocabulary, stays for the next start."""
  opened = ['checkpoints', 'metrics.jsonl', 'starts']
  if not data.train_vocab.type:
    opened.append(resume.VOCAB)
  ours = [path for name in opened if not (path := workdir / name).exists()]
  try:
    yield
  except UserError:
    if resume.stored(workdir) is None and not (workdir / 'spikes').exists() and hosts.index() == 0:
      for path in ours:
        if path.is_dir():
          shutil.rmtree(path)
        else:
          path.unlink(missing_ok=True)
    raise


def _run(
  config: Any,
  place: mirror.Workdir,
  overrides: Sequence[str],
  given: Collection[str] | None,
  progress: Progress,
  stop: Stop,
  stack: contextlib.ExitStack,
) -> None:
  for note in resume.check_history(place.path):
    progress.note(note)
  run, source = opening.open_run(config, place, progress, given, overrides)
  config = run.config
  progress.expect(config.total_steps)
  session = Session(run, source, place, progress, stack)
  del source  # it may hold a whole model
  session.catch_up()
  for done in range(session.start + 1, config.total_steps + 1):
    if session.patience.over:
      break
    session.step(done)
    last, leaving = done == config.total_steps, stop.at(done)
    session.verified.check(stop, leaving)
    if done % config.log_steps == 0 or last:
      session.log(done)
    if done % config.checkpoint_steps == 0 or last or leaving:
      session.save(wait=last or leaving)
    if leaving and not last:
      progress.note(f'Stopped by {stop.reason} after step {done}; the same command resumes')
      return
    if session.is_judged(done, last):
      session.evaluate(done, last)
  session.finish()


def evaluate(
  config: Any, workdir: str, step: str | None = None, given: Collection[str] | None = None
) -> None:
  """Prints the held-out scores of a checkpoint of the workdir as one JSON line; null: no number.

  Args:
    config: that of the run, see `resume.stored_config`; what differs from it is said.
    workdir: of the run.
    step: of the checkpoint, or 'best' by `config.best`; None: the newest intact one.
    given: as of `run`.
  """
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
  abstract = first_state.saved(run.config, run.abstract).variables
  variables = first_state.with_teacher(run, reading.read_variables(directory, abstract))
  done = int(directory.name)
  scores = held_out_scores(run, done, True, variables, progress)
  if jax.process_index() == 0:
    numbers = {name: score if math.isfinite(score) else None for name, score in scores.items()}
    print(json.dumps(dict(checkpoint=str(directory), **numbers)))
