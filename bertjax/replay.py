"""Repeats a step of a run, bit for bit: python -m bertjax.replay --workdir=runs/bert --step=12345

Goes on from the newest checkpoint before the step, or from the seed, and takes every step up to it
with the config that it had, see checkpoint/history.py. Prints loss, norm of the gradients and
learning rate of the step, and the norms of parameters, gradients and updates layer by layer; the
text of its rows with --text. Where the run has logged the step by itself, both must agree to the
bit: that needs as many devices, of the same kind, as the run had. Leaves the run as it is.
"""

import math
import pathlib
from collections.abc import Mapping
from typing import Any

from absl import flags

from bertjax import json_files
from bertjax.config import command_line
from bertjax.errors import UserError, door
from bertjax.machine import remote
from bertjax.metrics import lines

_WORKDIR = flags.DEFINE_string('workdir', None, 'Directory of the run.', required=True)
_STEP = flags.DEFINE_integer('step', None, 'Step to repeat, counted from 1.', 1, required=True)
_TEXT = flags.DEFINE_bool('text', False, 'Print the text of the rows.')

FIGURES = ('loss', 'grad_norm')


def replay(workdir: str, step: int, say: Any) -> dict[str, Any] | None:
  """Repeats a step, counted from 1, of a workdir, and says what goes on to a `Progress`; returns
  what `spikes.describe` says, with the norms of its layers, None of a step that was left out.
  UserError: no run there, or no such step."""
  import jax

  from bertjax.checkpoint import history, reading, resume
  from bertjax.machine import mirror
  from bertjax.train import opening, resolve

  place = mirror.Workdir(workdir, say.note, reads=True)
  place.fetch()
  record = resume.stored(place.path)
  if record is None:
    raise UserError(f'--workdir: expected the workdir of a run, got {workdir}')
  total = record['config']['total_steps']
  if step > total:
    raise UserError(f'--step: expected a step of 1 to {total}, got {step}')
  checkpoints = pathlib.Path(place.path).absolute() / 'checkpoints'
  earlier = [checkpoints / str(s) for s in reversed(reading.steps_in(checkpoints)) if s < step]
  directory = reading.first_intact(earlier, place.fetch_checkpoint) if earlier else None
  first = 1 + (int(directory.name) if directory else 0)
  run, state = None, None
  for begin, end in history.stretches(record, first, step):
    run, source = opening.open_run(resolve.of_step(record, end).config, place, say)
    if state is None:
      same = history.config_of(record, first - 1) == history.config_of(record, first)
      state = _first_state(run, source, directory, same, say)
    else:  # the mesh may be another one
      state = jax.device_put(state, jax.tree.map(lambda x: x.sharding, run.abstract))
    say.note(f'Taking steps {begin} to {end}')
    for done in range(begin, min(end + 1, step)):
      state = _take(run, state, done)
  return _describe(run, state, step)


def _first_state(
  run: Any, source: Any, directory: pathlib.Path | None, same: bool, say: Any
) -> Any:
  """Returns the state of a checkpoint, whose last batch is compared if it had the `same` config; or
  of step 0."""
  from bertjax.checkpoint import reading
  from bertjax.train import first_state

  if directory is None:
    return first_state.initial_state(run, say.note, source)
  state, meta = reading.read_state(directory, first_state.saved(run, run.abstract))
  state = first_state.restored(run, state)
  if same:
    first_state.check_last_batch(run, meta, int(directory.name))
  if run.config.save_carry:
    return state
  say.note('The carry was not saved (config.save_carry=False): memory starts empty')
  return first_state.with_first_carries(run, state)


def _take(run: Any, state: Any, done: int) -> Any:
  """Returns the state after a step, which is taken as the loop does."""
  phase, batch, state = _ready(run, state, done)
  return phase.leave_out(state) if batch is None else phase.train(state, batch)[0]


def _describe(run: Any, state: Any, step: int) -> dict[str, Any] | None:
  """Takes the last step, and finds the norms of its layers as well."""
  from bertjax.train import layer_norms
  from bertjax.train.watch import spikes

  phase, batch, state = _ready(run, state, step)
  if batch is None:
    return None
  norms = layer_norms.by_layer(phase.norms(state, batch))  # before the step takes the state
  _, found = phase.train(state, batch)
  described = spikes.describe(run, step, found, batch)
  return described if described['layers'] else dict(described, layers=norms)


def _ready(run: Any, state: Any, done: int) -> tuple[Any, Any, Any]:
  """(phase, batch, state) before a step; no batch where it is left out."""
  phase, index = run.at(done)
  batch, _ = phase.next_batch(index)
  if not phase.takes(batch):
    phase.compile(run.abstract, batch)
  if index == 0:
    state = phase.enter(state)
  return phase, None if run.timeline.leaves_out(done) else batch, state


def logged(workdir: str, step: int) -> dict[str, float] | None:
  """Returns loss and norm of the gradients of a step as logged; None if not by itself."""
  rows = [row for row in lines.of_run(workdir) if 'tokens/real' in row]  # of training
  found = {row['step']: row for row in rows}
  if 'loss' in found.get(step, {}) and (step == 1 or step - 1 in found):
    return {key: found[step][key] for key in FIGURES}
  spike = remote.path(workdir) / 'spikes' / f'{step}.json'
  record = json_files.read(spike) if spike.exists() else None
  return record and {key: record[key] for key in FIGURES}


def shown(step: int, found: Mapping[str, Any], text: bool) -> str:
  """Formats the step for people, with figures in full, so that they can be compared."""
  first, last = found['rows']
  said = [f'step {step}, phase {found["phase"]!r}, batch {found["batch"]}, rows {first} to {last}']
  said += [f'{key} {found[key]!r}' for key in (*FIGURES, 'lr')]
  said += [f'{name} {float(value)!r}' for name, value in found['terms'].items()]
  kinds = ('parameters', 'gradients', 'updates')
  width = max(map(len, found['layers']))
  said += ['', f'{"norms":{width}}' + ''.join(f'  {kind:>12}' for kind in kinds)]
  for layer, norms in found['layers'].items():
    said.append(f'{layer:{width}}' + ''.join(f'  {norms[kind]:12.5g}' for kind in kinds))
  if text:
    said += ['', *(f'row {first + i}: {row}' for i, row in enumerate(found['text']))]
  return '\n'.join(said)


def main() -> int:
  """Prints a step; returns 1 where the run has logged other figures."""
  from bertjax.metrics.progress import Progress

  workdir, step = _WORKDIR.value, _STEP.value
  found = replay(workdir, step, Progress(step))
  if found is None:
    print(f'step {step} was left out (config.skip_steps): it trained nothing')
    return 0
  print(shown(step, found, _TEXT.value))
  before = logged(workdir, step)
  if before is None:
    print('\nThe run has not logged this step by itself: there is nothing to compare with')
    return 0
  same = all(
    before[k] == found[k] or math.isnan(before[k]) and math.isnan(found[k]) for k in FIGURES
  )
  print('\nThe run has logged the same, to the bit' if same else f'\nThe run has logged {before}')
  return 0 if same else 1


if __name__ == '__main__':
  with door('bertjax.replay'):
    command_line.run(main, 'bertjax.replay')
