"""Steps that go wrong on purpose: skipped, left out, recorded and repeated, also over kills."""

import functools
import json
import re
import subprocess
import types
from typing import Any, cast

import forks
import jax.numpy as jnp
import numpy as np
import pytest
from mutation import mutation
from processes import ROOT, STEPS, environment, exact, finish, kill_at, lines, run, steps_logged

from bertjax.checkpoint import finite
from bertjax.train.watch import Step, spikes

PLANTED = ('--config.objective.name=tests.support.planted', '--config.optimizer.clip=0.0')
WATCHED = (
  *PLANTED, '--config.skip_nonfinite=2', '--config.spike=6', '--config.skip_steps=(5,(32,33))',
)  # fmt: skip


def record(workdir, step):
  return json.loads((workdir / 'spikes' / f'{step}.json').read_text())


def replay(workdir, step, *more) -> subprocess.CompletedProcess:
  flags = [f'--workdir={workdir}', f'--step={step}', '--trust_code=tests.support.planted', *more]
  return forks.run('bertjax.replay', *flags, cwd=ROOT, env=environment())


@pytest.fixture(autouse=True)
def planted(monkeypatch):
  monkeypatch.setenv('PLANTED', 'nan:12,13 times:30')


@pytest.fixture(scope='module')
def straight(rich_store, tmp_path_factory):
  """An uninterrupted run over steps that are planted, left out, and fine."""
  workdir = tmp_path_factory.mktemp('watched')
  with pytest.MonkeyPatch.context() as patch:
    patch.setenv('PLANTED', 'nan:12,13 times:30')
    finish(rich_store, workdir, *WATCHED)
  return workdir


@mutation('found = phase.leave_out(self._state), None', 'found = phase.train(self._state, batch)')
def test_what_trained_nothing_is_counted_and_in_no_mean(straight):
  found = {line['step']: line for line in lines(straight) if 'tokens/real' in line}
  assert sorted(found) == list(range(1, STEPS + 1))
  assert [step for step, line in found.items() if 'loss' not in line] == [5, 12, 13, 32, 33]
  assert all(found[step]['left_out'] == 1 for step in (5, 32, 33))
  assert all(found[step]['skipped'] == 1 for step in (12, 13))
  assert all(np.isfinite(line.get('loss', 0.0)) for line in found.values())


def test_what_went_wrong_is_recorded_with_its_rows(straight):
  assert sorted(int(p.stem) for p in (straight / 'spikes').iterdir()) == [12, 13, 30]
  bad, spike = record(straight, 13), record(straight, 30)
  assert bad['skipped'] and bad['why'] == 'not finite' and np.isnan(bad['loss'])
  assert (bad['batch'], bad['rows'], len(bad['text'])) == (12, [96, 103], 8)
  assert all(text.startswith('[CLS]') and 'piece' in text for text in bad['text'])
  assert spike['why'].startswith('loss and grad_norm more than 6 standard deviations')
  assert spike['loss'] > 5 * spike['usual']['loss']['mean'] and not spike['skipped']
  whole = sum(layer['gradients'] ** 2 for layer in spike['layers'].values()) ** 0.5
  np.testing.assert_allclose(whole, spike['grad_norm'], rtol=1e-5)
  assert {'encoder/layers/0', 'encoder/layers/1'} <= set(spike['layers'])


@pytest.mark.full
@mutation("Spikes(workdir, run, meta.get('spikes'),", 'Spikes(workdir, run, None,')
def test_a_kill_after_a_skipped_step_changes_no_bit(rich_store, straight, tmp_path):
  kill_at(rich_store, tmp_path, lambda: steps_logged(tmp_path) >= 17, *WATCHED)
  assert 17 <= steps_logged(tmp_path) < STEPS - 5
  assert 'Resuming after step' in finish(rich_store, tmp_path, *WATCHED)
  assert exact(tmp_path) == exact(straight)
  assert record(tmp_path, 30) == record(straight, 30)  # judged by steps from before the kill
  last = [
    json.loads((w / 'checkpoints' / str(STEPS) / 'manifest.json').read_text())['meta']['spikes']
    for w in (tmp_path, straight)
  ]
  assert last[0] == last[1] and last[0]['skipped'] == 2


@mutation('return _describe(run, state, step)', 'return _describe(run, state, step - 1)')
@pytest.mark.full
@pytest.mark.parametrize('step', [21, 30])
def test_a_step_is_repeated_to_the_bit(straight, step):
  before = {p: p.read_bytes() for p in straight.rglob('*') if p.is_file()}
  done = replay(straight, step, '--text')
  assert done.returncode == 0, done.stderr + done.stdout
  assert 'The run has logged the same, to the bit' in done.stdout
  line = next(x for x in lines(straight) if x['step'] == step and 'loss' in x)
  for key in ('loss', 'grad_norm', 'lr'):
    assert f'\n{key} {line[key]!r}\n' in done.stdout
  assert re.search(r'\nencoder/layers/1 +\d', done.stdout)
  first = (step - 1) * 8
  assert f'\nrow {first}: [CLS]' in done.stdout and f'\nrow {first + 7}: [CLS]' in done.stdout
  assert {p: p.read_bytes() for p in straight.rglob('*') if p.is_file()} == before


@pytest.mark.full
def test_a_step_that_was_left_out_is_said_and_one_that_there_is_not_is_refused(straight):
  assert 'was left out' in replay(straight, 33).stdout
  assert '--step: expected a step of 1 to 40, got 41' in replay(straight, 41).stderr


@mutation('self._skipped < limit', 'self._skipped <= limit')
@pytest.mark.full
def test_one_step_too_many_stops_the_run_and_leaving_it_out_goes_on(rich_store, tmp_path):
  few = (*PLANTED, '--config.skip_nonfinite=1')
  done = run(rich_store, tmp_path, *few)
  assert done.returncode == 1 and 'Step 12 was skipped, 1 of at most 1' in done.stdout
  assert 'the loss of step 13 is nan' in done.stderr and '--config.skip_steps=13' in done.stderr
  finish(rich_store, tmp_path, *few, '--config.skip_steps=13')
  assert lines(tmp_path)[-1]['step'] == STEPS


@pytest.mark.full
def test_a_peak_is_changed_on_purpose_and_each_step_repeated_with_its_own(rich_store, tmp_path):
  flags = ('--config.optimizer.schedule.warmup_steps=4', '--config.keep_checkpoints=9')
  start = functools.partial(run, rich_store, tmp_path, config='spanbert.py:test')
  start(*flags, '--config.total_steps=12')  # of one phase, whose end may move
  flags = (*flags, '--config.optimizer.schedule.peak=0.003')
  refused = start(*flags)
  assert refused.returncode == 1 and '--override=KEY' in refused.stderr
  done = start(*flags, '--override=optimizer.schedule.peak')
  assert 'peak: 0.003 from now on' in done.stdout, done.stderr
  changed = [line for line in lines(tmp_path) if 'changed' in line]
  assert [line['step'] for line in changed] == [12]
  assert changed[0]['changed']['optimizer.schedule.peak']['new'] == 0.003
  (tmp_path / 'checkpoints' / '12').rename(tmp_path / 'twelve')  # from 6, over the change
  for step in (9, 15):
    done = replay(tmp_path, step)
    assert 'The run has logged the same, to the bit' in done.stdout, done.stdout + done.stderr


@mutation('if skipped and not spoiled and', 'if skipped and')
def test_a_spoiled_state_is_not_saved_after_a_step_that_was_skipped(tmp_path, monkeypatch):
  """Its memory, say, which no step looks at, and because of which all are skipped from now on."""
  config = types.SimpleNamespace(skip_nonfinite=3, spike=0.0)
  monkeypatch.setattr(spikes.Spikes, '_record', lambda *given: tmp_path / 'spikes' / '5.json')
  monkeypatch.setattr(spikes, 'where', lambda *given: ('main', 4, (32, 39)))
  run = types.SimpleNamespace(config=config)
  watch = spikes.Spikes(tmp_path, cast('Any', run), None, lambda line: None, lambda: None)
  found = dict(loss=np.nan, grad_norm=np.nan, skipped=True)
  step = Step(5, cast('Any', None), 4, found, {}, {})
  watch.after(step)
  assert watch.saved(step, dict(carry=jnp.zeros(2)))['spikes']['skipped'] == 1
  with pytest.raises(finite.NotFinite, match='the state after step 5 has NaN.* arrays, carry; 1 s'):
    watch.saved(step, dict(carry=jnp.array([0.0, jnp.nan])))
