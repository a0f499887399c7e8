"""The loop end to end, in processes of their own: kills, SIGTERM, two processes, errors."""

import json
import os
import shutil
import subprocess
import sys
import types
from unittest import mock

import cases
import forks
import numpy as np
import processes
import pytest
from mutation import mutation
from processes import ROOT, STEPS, command, environment, exact, kill_at, lines, run, steps_logged

from bertjax.errors import UserError
from bertjax.train import first_state, loop


@pytest.fixture(scope='module')
def straight(rich_store, tmp_path_factory):
  """The uninterrupted run, which needs neither TensorFlow nor torch."""
  workdir = tmp_path_factory.mktemp('straight')
  blocked = 'tensorflow', 'seqio', 'tensorflow_datasets', 'tensorflow_text', 'torch'
  code = (
    'import runpy, sys\n'
    f'for name in {blocked!r}: sys.modules[name] = None\n'
    f'sys.argv = {command(rich_store, workdir)[2:]!r}\n'
    "runpy.run_module('bertjax.main', run_name='__main__')\n"
  )
  done = subprocess.run(
    [sys.executable, '-c', code], cwd=ROOT, env=environment(), text=True, capture_output=True,
    timeout=600, check=False,
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  return workdir


def test_a_run_logs_every_step_and_leaves_its_files(straight):
  found = lines(straight)
  assert [x['step'] for x in found if 'loss' in x] == list(range(1, STEPS + 1))
  assert {'eval/mlm', 'eval/mlm_masked', 'eval/unigram_entropy', 'eval/next'} <= set(found[-1])
  assert list((straight / 'tensorboard').glob('events*'))
  assert found[35]['tokens/real'] > 0 and found[35]['tokens_per_second'] > 0


@mutation('index = self._run.at(done)', 'index = self._run.at(done - (self._start > 0))')
def test_a_kill_and_a_resume_change_no_bit(rich_store, straight, tmp_path):
  kill_at(rich_store, tmp_path, lambda: steps_logged(tmp_path) >= 16)
  assert 16 <= steps_logged(tmp_path) < STEPS
  said = processes.finish(rich_store, tmp_path)
  assert 'Resuming after step' in said and 'removed or changed' not in said
  assert exact(tmp_path) == exact(straight)


@pytest.mark.full
@mutation("Writer(workdir, start, tracked, meta.get('metrics'))", 'Writer(workdir, start, tracked)')
@mutation('    elif self._last is None:\n', '    elif False:\n')
@mutation('jax.process_index() == 0:  # also', 'self._last and jax.process_index() == 0:  # also')
def test_a_finished_run_says_so_draws_again_and_misses_a_line(rich_store, straight, tmp_path):
  shutil.copytree(straight, tmp_path / 'run')
  (tmp_path / 'run/curves.png').write_bytes(b'')  # a kill in the last moment
  path = tmp_path / 'run' / 'metrics.jsonl'
  rows = path.read_bytes().splitlines(keepends=True)
  path.write_bytes(b''.join([*rows[:9], *rows[10:]]))
  said = processes.finish(rich_store, tmp_path / 'run')
  assert 'removed or changed' in said
  # The scores of the last step come after its checkpoint.
  assert f'expected the {len(rows) - 1} lines that were written until step 40, ' in said
  assert 'The run is finished: all 40 steps are taken' in said
  assert (tmp_path / 'run/curves.png').stat().st_size > 10_000


@pytest.mark.full
@mutation('if said := moved(run.timeline, record, changed, start):', "if said := '':")
def test_a_longer_run_says_how_its_rate_moves(rich_store, straight, tmp_path):
  shutil.copytree(straight, tmp_path / 'run')
  shutil.rmtree(tmp_path / 'run' / 'checkpoints' / '40')  # of the second phase, whose end moves
  told = processes.finish(rich_store, tmp_path / 'run', '--config.total_steps=45')
  [said] = [line for line in told.splitlines() if 'Learning rate of step' in line]
  now, before = (
    {x['step']: x.get('lr') for x in lines(w)}[37] for w in (tmp_path / 'run', straight)
  )
  assert now > before
  assert f"step 37: {now:.6g} in phase 'phase1' from now on, {before:.6g} in phase 'phase2'" in said


@mutation('if found != expected:', 'if False:')
def test_a_resume_over_another_store_is_refused(rich_store, straight, tmp_path):
  shutil.copytree(straight, tmp_path / 'run')
  shutil.copytree(rich_store, tmp_path / 'store')
  tokens = np.load(tmp_path / 'store' / 'tokens-00000.npy')
  np.save(tmp_path / 'store' / 'tokens-00000.npy', (tokens - 4) % (cases.VOCAB - 5) + 5)
  shutil.rmtree(tmp_path / 'run' / 'checkpoints' / str(STEPS))  # so that there are steps to take
  done = run(tmp_path / 'store', tmp_path / 'run')
  assert done.returncode == 1 and 'is not the one this run was trained on' in done.stderr


@mutation(
  "if (then := meta.get('batch', now)) != now:", "if (then := meta.get('batch', now))[1] != now[1]:"
)
def test_phases_that_would_move_over_steps_already_taken_are_refused():
  phase = types.SimpleNamespace(place=lambda index: ('short', index, 8))
  opened = types.SimpleNamespace(at=lambda done: (phase, done - 1))
  with pytest.raises(
    UserError, match="batch 5 of phase 'long', now it is batch 5 of phase 'short'"
  ):
    first_state.check_last_batch(opened, dict(batch=['long', 5], fed_sha256=['x']), 6)


@mutation('  if start > run.timeline.total:\n', '  if False:\n')
def test_a_run_that_would_be_shorter_than_it_has_been_is_refused():
  run = types.SimpleNamespace(timeline=types.SimpleNamespace(total=5))
  first_state._check_reached(run, 5)
  with pytest.raises(UserError, match='checkpoint is of step 6, and config.total_steps=5'):
    first_state._check_reached(run, 6)


def test_evaluate_scores_the_newest_checkpoint_with_the_config_of_the_workdir(straight):
  flags = [f'--workdir={straight}', '--evaluate', '--config=configs/albert.py:base']
  done = forks.run('bertjax.main', *flags, cwd=ROOT, env=environment())
  found = json.loads(done.stdout.splitlines()[-1])
  assert found['eval/mlm'] == lines(straight)[-1]['eval/mlm']
  assert found['checkpoint'].endswith(str(STEPS))


@pytest.fixture(scope='module')
def one_update(tmp_path_factory):
  """A recipe in which one step alone, of five, has a rate at which nothing stays finite."""
  file = tmp_path_factory.mktemp('recipe') / 'one_update.py'
  file.write_text("""
from configs import bert


def get_config(size=None):
  c = bert.get_config(size)
  c.optimizer.schedule.power = 220.0
  c.optimizer.schedule.update(peak=1e34, warmup_steps=1)
  c.keep_checkpoints = 9
  return c
""")
  return dict(config=f'{os.path.relpath(file, os.path.join(ROOT, "configs"))}:test')


FEW = '--config.total_steps=5', '--config.checkpoint_steps=1'


@mutation('meta |= watcher.saved(step, held)', 'meta |= watcher.saved(step, {})')
@mutation('_spikes.saved(step, first_state.saved(self._run, self._state))', '_spikes.judge()')
def test_an_update_that_is_not_finite_stops_the_run_before_it_is_saved(
  rich_store, one_update, tmp_path
):
  done = run(rich_store, tmp_path / 'run', *FEW, **one_update)
  assert done.returncode == 1 and 'Traceback' not in done.stderr
  assert 'the loss of step 2 is ' in done.stderr and ' is nan' not in done.stderr
  assert 'the state after step 2 has NaN, infinity or too large numbers in ' in done.stderr
  assert "(phase 'phase1', batch 1, rows 8 to 15)" in done.stderr
  assert (
    'learning rate with --override, leave the step out with --config.skip_steps=2, ' in done.stderr
  )
  assert [p.name for p in (tmp_path / 'run' / 'checkpoints').iterdir()] == ['1']


@pytest.mark.full
def test_each_remedy_for_an_update_that_is_not_finite_goes_on(rich_store, one_update, tmp_path):
  run(rich_store, tmp_path / 'run', *FEW, **one_update)
  remedies = dict(
    lower=('--override=optimizer.schedule.peak', '--config.optimizer.schedule.peak=1e-4'),
    leave=('--config.skip_steps=(2,)',),
    skip=('--config.skip_nonfinite=1',),
  )
  for name, flags in remedies.items():
    shutil.copytree(tmp_path / 'run', tmp_path / name)
    said = processes.finish(rich_store, tmp_path / name, *FEW, *flags, **one_update)
    assert 'Resuming after step 1' in said
    losses = {x['step']: x.get('loss', 0.0) for x in lines(tmp_path / name) if 'tokens/real' in x}
    assert sorted(losses) == [1, 2, 3, 4, 5] and np.isfinite([*losses.values()]).all()
  flags = (f'--workdir={tmp_path / "run"}', '--step=2')
  done = forks.run('bertjax.replay', *flags, cwd=ROOT, env=environment())
  assert done.returncode == 0 and 'to the bit' in done.stdout, done.stderr


@mutation('score if math.isfinite(score) else None', 'score')
def test_a_score_that_is_no_number_is_null(monkeypatch, capsys, tmp_path):
  scores = {'eval/mlm': np.float64('nan'), 'eval/next': 0.5, 'eval/odds': float('inf')}
  monkeypatch.setattr(loop.resume, 'overrides', lambda path, config: [])
  monkeypatch.setattr(loop.opening, 'open_run', lambda *given: (mock.MagicMock(), None))
  monkeypatch.setattr(loop, 'first_state', mock.MagicMock())
  monkeypatch.setattr(loop.reading, 'choose', lambda *given: tmp_path / '7')
  monkeypatch.setattr(loop.reading, 'read_variables', lambda *given: {})
  monkeypatch.setattr(loop.evaluation, 'scores', lambda *given: scores)
  (tmp_path / '7').mkdir()
  (tmp_path / '7/manifest.json').touch()
  loop.evaluate(mock.MagicMock(total_steps=9), str(tmp_path))
  refuse = lambda token: pytest.fail(f'{token} is no JSON')
  found = json.loads(capsys.readouterr().out.splitlines()[-1], parse_constant=refuse)
  assert found == {
    'checkpoint': str(tmp_path / '7'), 'eval/mlm': None, 'eval/next': 0.5, 'eval/odds': None,
  }  # fmt: skip
