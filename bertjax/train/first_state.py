"""The state that a run begins with: from the seed and `config.init_from`, or its checkpoint."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import jax
import numpy as np

from bertjax.checkpoint import checkpoints as checkpoints_lib
from bertjax.checkpoint import finite, resume
from bertjax.checkpoint.may_differ import covers
from bertjax.config import timeline
from bertjax.errors import UserError
from bertjax.machine import hosts
from bertjax.metrics.progress import Progress
from bertjax.optim import averaging, schedules
from bertjax.sources import init_from, teacher
from bertjax.train import resolve, setup
from bertjax.train.step import State
from bertjax.train.watch import digests
from bertjax.types import TEACHER


def initial_state(
  run: setup.Run, say: Callable[[str], None] = print, source: init_from.Source | None = None
) -> State:
  """Makes variables from the seed, then of `config.init_from`, opened as `source` if it was, then a
  fresh optimizer state and carries. UserError, before anything is compiled: what it names, or the
  teacher, does not fit the run."""
  load, said = init_from.loader(run.config, run.vocabulary, run.abstract.variables, source)
  variables = load(_from_seed(run))
  for line in said:
    say(line)
  return _before_training(run, variables)


def seeded_state(run: setup.Run) -> State:
  """`initial_state` from the seed alone, whatever `config.init_from` names."""
  return _before_training(run, _from_seed(run))


def _from_seed(run: setup.Run) -> Any:
  taught = with_teacher(run, {})  # before anything is compiled
  shardings = jax.tree.map(lambda x: x.sharding, run.abstract.variables)
  make = lambda: run.phases[0].initial_variables(run.config.seed)
  return _together('variables', make, shardings) | taught


def _before_training(run: setup.Run, variables: Any) -> State:
  def rest(variables) -> State:
    opt_state = run.phases[0].tx.init(variables['params'])
    return State(jax.numpy.int32(0), variables, opt_state, first_carries(run))

  shardings = jax.tree.map(lambda x: x.sharding, run.abstract)
  return _together('state', rest, shardings, variables)


def _together(name: str, function: Callable, shardings: Any, *arguments: Any) -> Any:
  """Calls a function when all processes have compiled it: collectives of CPUs give up where one
  begins 30 s after another."""
  compiled = jax.jit(function, out_shardings=shardings).lower(*arguments).compile()
  hosts.barrier(f'compiled/{name}', math.inf)
  return compiled(*arguments)


def first_carries(run: setup.Run) -> dict[str, Any]:
  """phase name -> the carry before its first batch."""
  return {phase.name: phase.objective.carry(phase.template) for phase in run.phases}


def saved(run: setup.Run, state: State) -> State:
  """Returns the part of a state that checkpoints hold: no teacher, no carry if save_carry=False;
  and parameters as they are judged."""
  state = averaging.exchanged(state)
  state = state._replace(variables=teacher.without(state.variables))
  return state if run.config.save_carry else state._replace(carry={})


def with_teacher(run: setup.Run, variables: Any) -> Any:
  """Variables with the teacher's parameters, where the run has one; errors as `teacher.read`."""
  abstract = run.abstract.variables.get(TEACHER)
  if abstract is None:
    return variables
  return dict(variables, teacher=teacher.read(run.config, run.vocabulary, abstract))


def restored(run: setup.Run, state: State) -> State:
  """Returns the state that a checkpoint holds, with the teacher."""
  state = averaging.exchanged(state)
  return state._replace(variables=with_teacher(run, state.variables))


def with_first_carries(run: setup.Run, state: State) -> State:
  """Returns a state whose carry was not saved, as if its next batches were the first ones."""
  shardings = jax.tree.map(lambda x: x.sharding, run.abstract.carry)
  return state._replace(carry=jax.jit(lambda: first_carries(run), out_shardings=shardings)())


def begin(
  run: setup.Run,
  source: init_from.Source | None,
  checkpoints: checkpoints_lib.Checkpoints,
  progress: Progress,
  workdir: str,
) -> tuple[int, State, dict[str, Any]]:
  """Returns (steps taken, state, what else was saved) of the newest checkpoint, or of the seed.
  UserError: the batch of the last step is not the one that the run was trained on."""
  config, record = run.config, resume.stored(workdir)
  found = checkpoints.restore(saved(run, run.abstract))
  if found is None:
    progress.note('Making the initial state')
    state = initial_state(run, progress.note, source)
    finite.require(state, 'the initial state', ': take another config.init_from or teacher')
    return 0, state, {}
  start, state, meta = found[0], restored(run, found[1]), found[2]
  _check_reached(run, start)
  progress.note(f'Resuming after step {start}')
  changed = resume.changes(record, config, start)
  if others := resume.changed_batches(changed):
    progress.note(f'Batches are others from now on, by {", ".join(others)}')
  else:
    check_last_batch(run, meta, start, changed)
  if said := moved(run.timeline, record, changed, start):
    progress.note(said)
  if late := resume.trained_already(record, config.skip_steps, start):
    progress.note(f'Left out too late, step {start} was taken: {late} of config.skip_steps')
  if not config.save_carry:
    progress.note(
      'The carry was not saved (config.save_carry=False): memory starts empty, so the losses are '
      'not those of an uninterrupted run'
    )
    state = with_first_carries(run, state)
  return start, state, meta


def moved(
  new: timeline.Timeline, record: Mapping[str, Any] | None, changed: Iterable[str], start: int
) -> str:
  """Compares the steps after `start` with those of the config of step `start`, as a config.json has
  it, where keys `changed` say that they may differ; returns learning rate and phase of the first
  one that differs, now and before, or ''."""
  decisive = [key for key in changed if covers(('total_steps', 'optimizer', 'phases'), key)]
  if record is None or not decisive or start >= new.total:
    return ''
  old = resolve.of_step(record, start).timeline

  def at(line: timeline.Timeline, step: int) -> str:
    number, _ = line.at(min(step, line.total - 1))
    name, config, _ = line.phases[number]
    return f'{float(schedules.make(config.optimizer.schedule)(step)):.6g} in phase {name!r}'

  why = f' (config.total_steps={new.total}, {old.total} before)' * (new.total != old.total)
  for step in np.linspace(start, min(max(old.total, start + 1), new.total) - 1, 101).astype(int):
    if (now := at(new, step)) != (before := at(old, step)):
      return f'Learning rate of step {step + 1}: {now} from now on, {before} before{why}'
  return ''


def _check_reached(run: setup.Run, start: int) -> None:
  """Refuses a run that is shorter than what it has been; where tasks are drawn, what they were in
  those steps follows from its length."""
  if start > run.timeline.total:
    raise UserError(
      f'the newest checkpoint is of step {start}, and config.total_steps={run.timeline.total} is '
      'fewer: raise that, or config.epochs where it sets that, or give a new --workdir'
    )


def check_last_batch(
  run: setup.Run, meta: Mapping[str, Any], done: int, changed: Collection[str] = ()
) -> None:
  """Rebuilds the last batch before a checkpoint and compares it with the stored sha256, and the
  texts of the run, but for those whose keys were `changed`."""
  phase, index = run.at(done)
  now = list(phase.place(index)[:2])
  if (then := meta.get('batch', now)) != now:
    raise UserError(
      f'step {done} was batch {then[1]} of phase {then[0]!r}, now it is batch {now[1]} of phase '
      f'{now[0]!r}: config.total_steps moves the ends of phases, and steps already taken must not '
      'change theirs; keep it, or start in a new --workdir with config.init_from'
    )
  judged = meta.get('judged', meta)  # checkpoints of earlier versions have held_out alone
  for key, sha256 in digests.texts_sha256(run).items():
    before = judged.get(key, sha256)  # earlier versions noted fewer texts
    if before not in (sha256, '') and key.removeprefix('config.') not in changed:
      what = f'{run.store.path}/heldout' if key == 'held_out' else f'the text of {key}'
      raise UserError(
        f'{what} is not the text that this run has read: expected sha256 {before[:12]}, got '
        f'{sha256[:12] or "none"}. Put it back, give the other one a name of its own with '
        '--override=KEY, or start in a new --workdir with config.init_from'
      )
  expected = meta['fed_sha256']  # of the rows that each host was fed
  found = phase.batch_sha256(index, len(expected))
  if found != expected:
    raise UserError(
      f'the batch of step {done} is not the one this run was trained on (sha256 expected '
      f'{expected[0][:12]}, got {found[0][:12]}): the text, the examples or the code that reads '
      'them have changed; restore them, or start in a new --workdir with config.init_from'
    )
