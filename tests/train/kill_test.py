"""Every system, killed with -9 in the middle and resumed, logs what the uninterrupted run does."""

import importlib

import pytest
from processes import exact, finish, kill_at, steps_logged
from systems import NAMES


@pytest.mark.full
# BERT is killed in loop_test and in tests/faults; the quickstart is it on other text.
@pytest.mark.parametrize('name', sorted(set(NAMES) - {'bert', 'quickstart'}))
def test_a_kill_and_a_resume_change_no_bit(name, rich_store, tmp_path):
  phases = importlib.import_module(f'configs.{name}').get_config('test').phases
  small = [f'--config.phases.{k}.batch_size=8' for k, v in phases.items() if 'batch_size' in v]
  config = f'{name}.py:test'
  finish(rich_store, tmp_path / 'straight', *small, config=config)
  workdir = tmp_path / 'killed'
  kill_at(rich_store, workdir, lambda: steps_logged(workdir) >= 16, *small, config=config)
  assert 'Resuming after step' in finish(rich_store, workdir, *small, config=config)
  assert exact(workdir) == exact(tmp_path / 'straight')
