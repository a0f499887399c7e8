"""Which configs a workdir accepts when a run is resumed."""

import json

import pytest

from bertjax.checkpoint import resume
from configs import bert, quickstart


@pytest.fixture
def workdir(tmp_path):
  """A workdir that holds a run of bert.py:test."""
  config = bert.get_config('test')
  resume.check_workdir(tmp_path, config)
  resume.claim_workdir(tmp_path, config)
  return tmp_path


def test_a_new_workdir_is_not_claimed_by_a_check(tmp_path):
  resume.check_workdir(tmp_path, bert.get_config('test'))
  assert not list(tmp_path.iterdir())


def test_the_same_config_resumes(workdir):
  config = bert.get_config('test').lock()
  resume.check_workdir(workdir, config)
  assert json.loads((workdir / 'config.json').read_text())['model']['size'] == 'test'


def test_every_difference_is_listed_with_both_values(workdir):
  config = bert.get_config('test')
  config.seed = 5
  config.model.dropout = 0.2
  config.data.mask.new = 'key'
  with pytest.raises(ValueError) as error:
    resume.check_workdir(workdir, config)
  assert str(error.value).splitlines() == [
    f'{workdir} holds a run of another config:',
    "  config.data.mask.new: expected None, got 'key'",
    '  config.model.dropout: expected 0.1, got 0.2',
    '  config.seed: expected 0, got 5',
    'Give the same values to resume it, or another --workdir for a new run',
  ]


def test_another_system_is_refused(workdir):
  with pytest.raises(ValueError, match='config.data.mixture: expected .*python_docs'):
    resume.check_workdir(workdir, quickstart.get_config())


def leaf(config, key):
  """(parent, last part of the key) of a leaf at or below a dotted key."""
  *parents, last = key.split('.')
  for part in parents:
    config = config[part]
  while hasattr(config[last], 'keys'):
    config, last = config[last], next(iter(config[last]))
  return config, last


@pytest.mark.parametrize('key', resume.MAY_DIFFER)
def test_what_may_differ_may_differ(workdir, key):
  config = bert.get_config('test')
  parent, last = leaf(config, key)
  with parent.ignore_type():
    parent[last] = 12345
  resume.check_workdir(workdir, config)


def test_what_follows_from_total_steps_follows_it_and_nothing_else_does(workdir):
  config = bert.get_config('test')
  config.total_steps = 5_000_000
  assert config.optimizer.schedule.warmup_steps == 50_000
  resume.check_workdir(workdir, config)
  assert config.total_steps == 5_000_000  # the check works on a copy
  config.optimizer.schedule.warmup_steps = 7
  with pytest.raises(ValueError, match='warmup_steps: expected 10000, got 7'):
    resume.check_workdir(workdir, config)


def test_differences_of_nested_dicts():
  old = {'a': {'b': 1, 'c': [1, 2]}, 'log_steps': 3, 'mesh': {'data': 1}, 'meshes': 1, 'e': {}}
  new = {'a': {'b': 1, 'c': [1, 3]}, 'log_steps': 4, 'mesh': {'data': 8}, 'meshes': 2, 'e': {}}
  assert resume.config_differences(old, old) == []
  assert resume.config_differences(old, new) == [('a.c', [1, 2], [1, 3]), ('meshes', 1, 2)]
