"""Every system, killed with -9 in the middle and resumed, logs what the uninterrupted run does."""

import importlib

import cases
import pytest
from contract_test import NAMES
from processes import exact, kill_at, run, steps_logged


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  path = tmp_path_factory.mktemp('kill') / 'store'
  cases.write_rich_store(path)
  return path


@pytest.mark.full
# BERT is killed five times in train_test; the quickstart is it on other text.
@pytest.mark.parametrize('name', sorted(set(NAMES) - {'bert', 'quickstart'}))
def test_a_kill_and_a_resume_change_no_bit(name, store, tmp_path):
  phases = importlib.import_module(f'configs.{name}').get_config('test').phases
  small = [f'--config.phases.{k}.batch_size=8' for k, v in phases.items() if 'batch_size' in v]
  config = f'{name}.py:test'
  done = run(store, tmp_path / 'straight', *small, config=config)
  assert done.returncode == 0, done.stderr
  workdir = tmp_path / 'killed'
  kill_at(store, workdir, lambda: steps_logged(workdir) >= 16, *small, config=config)
  done = run(store, workdir, *small, config=config)
  assert 'Resuming after step' in done.stdout, done.stderr
  assert exact(workdir) == exact(tmp_path / 'straight')
