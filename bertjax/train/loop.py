"""THE loop: store, run, state, restore, then steps with log, evaluation and checkpoints, in order.

It knows systems only through `types.Objective` and data only through `data.loader`. What is fixed
before the first step is made in setup.py; a phase's compiled steps live in stepper.py.
"""

import json
import math
import pathlib
import signal
from typing import Any

import jax
from jax.experimental import multihost_utils

from bertjax.checkpoint import checkpoints as checkpoints_lib
from bertjax.checkpoint import init_from, resume
from bertjax.data import ensure_store, loader
from bertjax.errors import UserError
from bertjax.metrics import curves, ledger
from bertjax.metrics import writer as metrics_writer
from bertjax.train import report, setup
from bertjax.train.phase import Stepper
from bertjax.train.step import State


class Stop:
  """Set by SIGTERM; several processes agree on the step at which they stop."""

  def __init__(self):
    self._asked = False
    signal.signal(signal.SIGTERM, self._ask)

  def _ask(self, *unused_args) -> None:
    self._asked = True

  def at(self, done: int) -> bool:
    """Whether to save and leave after step `done`."""
    if jax.process_count() > 1:
      return multihost_utils.reached_preemption_sync_point(done)
    return self._asked


def prepare_run(config: Any, workdir: str, progress: metrics_writer.Progress) -> setup.Run:
  """The store (made first if the config gives text) and the run over it."""
  if jax.process_index() == 0:
    path = ensure_store.ensure_store(config.data, config.seed, workdir)
  if jax.process_count() > 1:
    multihost_utils.sync_global_devices('store')
    path = ensure_store.ensure_store(config.data, config.seed, workdir)
  if config.data.reader == 'seqio':
    progress.note(
      f'Streaming {config.data.mixture or config.data.input} through seqio: slower than a store; '
      'nothing is held out unless it has a split validation; a resume reads past what it has seen'
    )
  else:
    progress.note(f'Reading the store {path}')
  run = setup.make_run(config, path, fallback=str(pathlib.Path(workdir, 'plans')))
  for system in run.systems:
    stats = ', '.join(f'{k} {v:,.6g}' for k, v in system.examples.stats.items())
    progress.note(f'Phase {system.phase.name!r}: {stats}')
  return run


def profile_window(window: Any, done: int, workdir: str) -> None:
  """Traces `config.profile.steps` steps from `config.profile.start` on, into workdir/profile."""
  if window.steps and done == window.start:
    jax.profiler.start_trace(pathlib.Path(workdir, 'profile'))
  if window.steps and done == window.start + window.steps:
    jax.profiler.stop_trace()


def initial_state(config: Any, run: setup.Run) -> State:
  """Variables from the seed, then `config.init_from`, then a fresh optimizer state and carries."""
  system = run.systems[0]
  shardings = jax.tree.map(lambda x: x.sharding, run.abstract)
  make = jax.jit(
    lambda: setup.initial_variables(system, config.seed), out_shardings=shardings.variables
  )
  variables = init_from.apply(make(), config.init_from)

  def rest(variables) -> State:
    opt_state = system.tx.init(variables['params'])
    return State(jax.numpy.int32(0), variables, opt_state, first_carries(run))

  return jax.jit(rest, out_shardings=shardings)(variables)


def first_carries(run: setup.Run) -> dict[str, Any]:
  """phase name -> the carry before its first batch."""
  return {s.phase.name: s.objective.carry(s.template) for s in run.systems}


def saved(config: Any, state: State) -> State:
  """What a checkpoint holds of a state: all, or with save_carry=False no carry."""
  return state if config.save_carry else state._replace(carry={})


def with_first_carries(run: setup.Run, state: State) -> State:
  """A state whose carry was not saved, as if its next batches were the first ones."""
  shardings = jax.tree.map(lambda x: x.sharding, run.abstract.carry)
  return state._replace(carry=jax.jit(lambda: first_carries(run), out_shardings=shardings)())


def check_last_batch(run: setup.Run, meta: dict, done: int) -> None:
  """Rebuilds the last batch before a checkpoint and compares it with the stored sha256."""
  found = last_batch_sha256(run, done)
  if found != meta['batch_sha256']:
    raise UserError(
      f'the batch of step {done} is not the one this run was trained on (sha256 expected '
      f'{meta["batch_sha256"][:12]}, got {found[:12]}): the store or the data code has changed; '
      'restore it, or start in a new --workdir with config.init_from'
    )


def last_batch_sha256(run: setup.Run, done: int) -> str:
  """sha256 of the global batch that step number `done` (from 1) was trained on."""
  phase, index = run.timeline.at(done - 1)
  system = run.systems[phase]
  batch = loader.batch_at(system.examples, index, system.phase.config.batch_size)
  return loader.batch_sha256(batch)


def require_finite(
  done: int, found: dict, run: setup.Run, checkpoints: checkpoints_lib.Checkpoints
):
  """Stops the run at a loss that is not a number, before it reaches a checkpoint."""
  if math.isfinite(float(found['loss'])):
    return
  phase, index = run.timeline.at(done - 1)
  system = run.systems[phase]
  first = index * system.phase.config.batch_size
  raise UserError(
    f'the loss of step {done} is {float(found["loss"])} (phase {system.phase.name!r}, batch '
    f'{index}, rows {first} to {first + system.phase.config.batch_size - 1}); the last good '
    f'checkpoint is {checkpoints.latest()}. Lower the learning rate or look at the batch'
  )


def held_out_scores(
  run: setup.Run, steppers: list[Stepper], phase: int, variables: Any
) -> dict[str, float]:
  """`eval/<term>` of the running phase, or `eval/<phase>/<term>` of all phases that take turns."""
  if not run.timeline.interleaved:
    return steppers[phase].evaluate(variables)
  found = {}
  for stepper in steppers:
    for name, value in stepper.evaluate(variables).items():
      found[f'eval/{stepper.system.phase.name}/{name.removeprefix("eval/")}'] = value
  return found


def run(config: Any, workdir: str) -> None:
  """Trains until config.total_steps, from the newest checkpoint in the workdir if there is one."""
  pathlib.Path(workdir).mkdir(parents=True, exist_ok=True)
  progress = metrics_writer.Progress(config.total_steps)
  resume.check_workdir(workdir, config)
  run = prepare_run(config, workdir, progress)
  resume.claim_workdir(workdir, config)
  progress.note(f'Mesh {dict(run.mesh.shape)} of {jax.devices()[0].device_kind}')

  checkpoints = checkpoints_lib.Checkpoints(
    pathlib.Path(workdir, 'checkpoints'), config.keep_checkpoints, config.best
  )
  restored = checkpoints.restore(saved(config, run.abstract))
  if restored is None:
    progress.note('Making the initial state')
    state, start = initial_state(config, run), 0
  else:
    start, state, meta = restored
    progress.note(f'Resuming after step {start}')
    check_last_batch(run, meta, start)
    if not config.save_carry:
      progress.note(
        'The carry was not saved (config.save_carry=False): memory starts empty, so the losses are '
        'not those of an uninterrupted run'
      )
      state = with_first_carries(run, state)
  del restored

  steppers = [Stepper(run, system) for system in run.systems]
  writer = metrics_writer.Writer(workdir, start)
  book = ledger.Ledger(jax.devices())
  stop, previous = Stop(), None

  for done in range(start + 1, config.total_steps + 1):
    profile_window(config.profile, done, workdir)
    phase, index = run.timeline.at(done - 1)
    stepper = steppers[phase]
    if not stepper.compiled:
      progress.note(f'Compiling the train step of phase {stepper.system.phase.name!r}')
      with book.time('compile'):
        stepper.compile_train()
    if index == 0:
      state = stepper.enter(state)
    with book.time('input'):
      batch, counts = stepper.next_batch(index)
    with book.time('compute'):
      state, found = stepper.train(state, batch)
      if previous:  # one step late, so that the device never waits for the host
        require_finite(*previous, run, checkpoints)
    book.count(counts, stepper.system.objective.flops(batch))
    previous = (done, found)
    last = done == config.total_steps
    leaving = stop.at(done)

    if done % config.log_steps == 0 or last or leaving:
      with book.time('compute'):
        found = jax.device_get(found)
      require_finite(done, found, run, checkpoints)
      scalars = {k: float(found[k]) for k in ('loss', 'grad_norm', 'lr')}
      scalars |= stepper.system.objective.finish(found['sums']) | book.interval()
      writer.write(done, scalars)
      progress.update(done, scalars)
    scores = {}
    if done % config.eval_steps == 0 or last:
      with book.time('eval'):
        scores = held_out_scores(run, steppers, phase, state.variables)
        if last:
          scores |= report.token_by_token(stepper, state.variables, run.store)
      writer.write(done, scores)
      shown = ', '.join(f'{k} {v:.4f}' for k, v in scores.items())
      progress.note(f'Step {done}: {shown or "nothing is held out to evaluate on"}')
    if done % config.checkpoint_steps == 0 or last or leaving:
      require_finite(done, found, run, checkpoints)
      with book.time('checkpoint'):
        meta = dict(batch_sha256=last_batch_sha256(run, done))
        checkpoints.save(done, saved(config, state), meta, scores, wait=last or leaving)
    if leaving and not last:
      progress.note(f'Stopped by SIGTERM after step {done}; the same command resumes')
      break
  checkpoints.close()
  writer.close()
  progress.close()
  book.print_summary()
  if start < config.total_steps and not stop.at(config.total_steps):
    report.show(config, steppers[-1], state.variables, run.store, workdir)
    if jax.process_index() == 0:
      curves.plot([workdir])


def evaluate(config: Any, workdir: str) -> None:
  """Prints the held-out scores of the workdir's newest intact checkpoint as one JSON line."""
  progress = metrics_writer.Progress(config.total_steps)
  run = prepare_run(config, workdir, progress)
  directory = checkpoints_lib.newest(workdir)
  variables = checkpoints_lib.read_variables(directory, run.abstract.variables)
  steppers = [Stepper(run, system) for system in run.systems]
  scores = held_out_scores(run, steppers, len(steppers) - 1, variables)
  scores |= report.token_by_token(steppers[-1], variables, run.store)
  if jax.process_index() == 0:
    print(json.dumps(dict(checkpoint=str(directory), **scores)))
