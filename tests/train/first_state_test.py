"""The state that a run begins with; of a run that goes on longer or shorter, what of its steps to
come has moved."""

import math
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict
from mutation import mutation

from bertjax.checkpoint import resume
from bertjax.config import timeline
from bertjax.errors import UserError
from bertjax.sources import init_from
from bertjax.train import first_state
from configs import bert

PEAK, WARM = 1e-4, 10


def run_of(total, schedule, phases=None) -> Any:
  config: Any = bert.get_config('test')
  config.total_steps, config.phases = total, ConfigDict(phases or {})
  with config.unlocked():
    follows = lambda value: config.get_oneway_ref('total_steps') if value == 'T' else value
    given = {key: follows(value) for key, value in schedule.items()}
    config.optimizer.schedule = ConfigDict(dict(given, peak=PEAK))
  return config


def said(workdir, start, old, new):
  """The lines of a run of config `old` that goes on after step `start` with `new`."""
  resume.claim_workdir(workdir, old.copy_and_resolve_references(), {})
  return moved(workdir, start, new)


def moved(workdir, start, new):
  record = resume.stored(workdir)
  changed = resume.changes(record, new.copy_and_resolve_references(), start)
  return first_state.moved(timeline.make(new), record, changed, start)


LINE = dict(name='linear', warmup_steps=WARM, total_steps='T')
line = lambda step, total: PEAK * (total - step) / (total - WARM)
STABLE = dict(LINE, name='warmup_stable_decay', decay_steps=20)
stable = lambda step, total: PEAK * (1 - math.sqrt(max(step - total + 20, 0) / 20))


@mutation('for step in np.linspace(start, ', 'for step in np.linspace(start + 1, 1 + ')
@mutation('!= (before := at(old, step)):', 'and (before := at(old, step)):')
@pytest.mark.parametrize(
  'schedule, rate, start, totals, first',
  [
    (LINE, line, 90, (100, 1000), 91),
    (LINE, line, 100, (100, 1000), 101),  # the run was over: its last rate would have held
    (LINE, line, 50, (100, 60), 51),
    (LINE, line, 60, (100, 60), None),  # nothing is left
    (STABLE, stable, 40, (100, 1000), 82),  # the peak now, and what was to come comes later
    (dict(name='constant'), None, 90, (100, 1000), None),
    (LINE, line, 90, (100, 100), None),
  ],
)
def test_a_rate_that_moves_is_said_with_both_values(tmp_path, schedule, rate, start, totals, first):
  found = said(tmp_path, start, *(run_of(total, schedule) for total in totals))
  if first is None:
    assert found == ''
    return
  before, now = (rate(first - 1, total) for total in totals)
  assert found == (
    f"Learning rate of step {first}: {now:.6g} in phase 'main' from now on, {before:.6g} in phase "
    f"'main' before (config.total_steps={totals[1]}, {totals[0]} before)"
  )


@mutation(' in phase {name!r}', '')
@pytest.mark.parametrize('schedule', [dict(name='constant'), dict(LINE, start=0)])
def test_phases_that_move_are_said_and_each_has_its_own_clock(tmp_path, schedule):
  grows = dict(share=0.1, batch_size=4)
  if schedule['name'] == 'linear':
    grows['optimizer'] = dict(schedule=dict(start=90, total_steps=10, warmup_steps=1))
  phases = dict(a=dict(share=0.9), b=grows)
  configs = [run_of(total, schedule, phases) for total in (100, 1000)]
  # Step 91 was to be the first one of b, before its own warm-up.
  now, before = (PEAK, PEAK) if schedule['name'] == 'constant' else (line(90, 1000), 0.0)
  assert said(tmp_path, 90, *configs) == (
    f"Learning rate of step 91: {now:.6g} in phase 'a' from now on, {before:.6g} in phase 'b' "
    'before (config.total_steps=1000, 100 before)'
  )


def test_a_peak_that_is_changed_on_purpose_moves_the_rate(tmp_path):
  old, new = (run_of(100, LINE) for _ in range(2))
  new.optimizer.schedule.peak = 2 * PEAK
  now, before = 2 * line(50, 100), line(50, 100)
  expected = (
    f"Learning rate of step 51: {now:.6g} in phase 'main' from now on, {before:.6g} in phase "
    "'main' before"
  )
  assert said(tmp_path, 50, old, new) == expected
  # Stopped before the next checkpoint: the change is in config.json, and the step is still to come.
  resume.claim_workdir(tmp_path, new.copy_and_resolve_references(), {}, 50)
  assert moved(tmp_path, 50, new) == expected


@mutation('run.abstract.variables, source)', '_from_seed(run), source)', case='source')
@mutation(
  '  taught = with_teacher(run, {})', "  taught = _together('', dict, None)", case='teacher'
)
@pytest.mark.parametrize('which', ['source', 'teacher'])
def test_what_does_not_fit_is_refused_before_anything_is_compiled(monkeypatch, which):
  def absent(*_):
    raise UserError('no such head')

  monkeypatch.setattr(first_state, '_together', lambda *_: pytest.fail('compiles'))
  monkeypatch.setattr(first_state.teacher, 'read', absent)
  monkeypatch.setattr(init_from, '_read', lambda *_: dict(params=dict(w=np.zeros(3))))
  config = bert.get_config('test')
  config.init_from = (('run', 'params/w', 'params/w', ()),) if which == 'source' else ()
  variables = dict(params=dict(w=jax.ShapeDtypeStruct((2,), float)), teacher={})
  run: Any = SimpleNamespace(
    config=config, vocabulary=None, abstract=SimpleNamespace(variables=variables)
  )
  said = r'params/w has shape \(3,\), the model \(2,\)' if which == 'source' else 'no such head'
  with pytest.raises(UserError, match=said):
    first_state.initial_state(run)


@mutation("  hosts.barrier(f'compiled/{name}', math.inf)\n", '')
@mutation('shardings).lower(*arguments).compile()', 'shardings)')
def test_processes_wait_until_all_have_compiled(monkeypatch):
  """As long as it takes: what the first one begins alone would be given up after 30 seconds."""
  told = []
  monkeypatch.setattr(first_state.hosts, 'barrier', lambda *given: told.append(given))

  def function(x):
    told.append('traced')
    jax.debug.callback(lambda: told.append('computed'))
    return x + 1

  one = jax.sharding.SingleDeviceSharding(jax.devices()[0])
  found = first_state._together('state', function, one, jnp.ones(2))
  jax.effects_barrier()
  assert found.tolist() == [2, 2] and found.sharding == one
  assert told == ['traced', ('compiled/state', math.inf), 'computed']
