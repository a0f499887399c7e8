"""Trackers: one that fails never stops a run, a resume goes on with it; the real ones offline."""

import json
import math
import sys
import time
import types

import pytest
from mutation import mutation

from bertjax.metrics import tracking
from bertjax.metrics.writer import Writer
from configs import bert


class Fake:
  """Remembers; fails at the steps of `fails`."""

  made: list = []
  fails: set = set()

  def __init__(self, name, config, workdir, id):
    self.name, self.config, self.id = name, config, id or f'id-{len(self.made)}'
    self.given, self.written, self.closed = id, [], False
    self.made.append(self)

  def write(self, step, values):
    if step in self.fails:
      raise ConnectionError(f'no network at {step}')
    self.written.append((step, values))

  def close(self):
    self.closed = True


@pytest.fixture
def config(monkeypatch):
  module = types.ModuleType('mine_tracker')
  module.TRACKER = Fake
  package = types.ModuleType('mine')
  package.__path__ = []
  monkeypatch.setitem(sys.modules, 'mine', package)
  monkeypatch.setitem(sys.modules, 'mine.tracker', module)
  monkeypatch.setattr(Fake, 'made', [])
  monkeypatch.setattr(Fake, 'fails', set())
  found = bert.get_config('test')
  found.trackers = ('mine.tracker',)
  return found


@mutation("ids.get(name, '')", "''")
@mutation('      self._trackers.write(step, values)\n', '      pass\n')
def test_metrics_go_to_the_tracker_and_a_resume_goes_on_with_it(config, tmp_path):
  said = []
  for start in (0, 5):
    trackers = tracking.Trackers(config, tmp_path, said.append)
    writer = Writer(tmp_path, start, trackers)
    writer.write(start + 5, {'loss': 1.5, 'odd': math.nan})
    writer.close()
    trackers.close()
  first, second = Fake.made
  assert first.given == '' and second.given == first.id == 'id-0'
  assert first.config['optimizer.schedule.peak'] == config.optimizer.schedule.peak
  assert first.written[0][0] == 5 and first.written[0][1]['loss'] == 1.5
  assert first.closed and second.closed
  assert json.loads((tmp_path / 'trackers.json').read_text()) == {'mine.tracker': 'id-0'}
  assert 'id-0' in said[0]


@mutation('except Exception as ', 'except MemoryError as ', file='bertjax/metrics/tracking.py')
@mutation('if self._failures[name] >= PATIENCE:', 'if False:')
def test_a_tracker_that_fails_is_said_and_then_left_alone(config, tmp_path):
  said = []
  trackers = tracking.Trackers(config, tmp_path, said.append)
  Fake.fails = {2, *range(4, 40)}
  for step in range(1, 30):
    trackers.write(step, {'loss': 1.0})
  (fake,) = Fake.made
  assert [step for step, _ in fake.written] == [1, 3]
  assert sum('no network' in line for line in said) == 1 + tracking.PATIENCE
  assert 'no more' in said[-1]


@pytest.mark.parametrize('torn', ['', '{"mine.tracker": ', '[7]', '\xff'])
@mutation("with self._guarded(RECORD, 'be read'):", 'if True:')
def test_a_torn_record_begins_anew(config, tmp_path, torn):
  (tmp_path / tracking.RECORD).write_bytes(torn.encode('latin-1'))
  said = []
  tracking.Trackers(config, tmp_path, said.append).close()
  assert 'trackers.json could not be read' in said[0] and Fake.made[0].given == ''
  assert json.loads((tmp_path / 'trackers.json').read_text()) == {'mine.tracker': 'id-0'}


@pytest.mark.full
def test_mlflow_keeps_the_metrics(tmp_path, monkeypatch):
  mlflow = pytest.importorskip('mlflow')
  monkeypatch.setenv('MLFLOW_TRACKING_URI', (tmp_path / 'mlruns').as_uri())
  monkeypatch.setenv('MLFLOW_ALLOW_FILE_STORE', 'true')
  config = bert.get_config('test')
  config.trackers = ('mlflow',)
  said = []
  for step in (3, 6):
    trackers = tracking.Trackers(config, tmp_path, said.append)
    trackers.write(step, {'loss': 1.0 / step, 'eval/mlm': 2.0})
    trackers.close()
  assert not [line for line in said if 'Warning' in line], said
  id = json.loads((tmp_path / 'trackers.json').read_text())['mlflow']
  history = mlflow.MlflowClient().get_metric_history(id, 'loss')
  assert sorted((m.step, m.value) for m in history) == [(3, 1 / 3), (6, 1 / 6)]
  assert mlflow.MlflowClient().get_run(id).data.params['model.layers'] == str(config.model.layers)


@pytest.mark.full
def test_wandb_takes_the_metrics_offline(tmp_path, monkeypatch):
  pytest.importorskip('wandb')
  monkeypatch.setenv('WANDB_MODE', 'offline')
  config = bert.get_config('test')
  config.trackers = ('wandb',)
  said = []
  trackers = tracking.Trackers(config, tmp_path, said.append)
  trackers.write(3, {'loss': 0.25, 'eval/mlm': 2.0})
  trackers.write(1, {'loss': 0.5})  # after a resume from an earlier step
  trackers.close()
  assert not [line for line in said if 'Warning' in line], said
  (log,) = tmp_path.glob('wandb/offline-run-*/run-*.wandb')
  end = time.monotonic() + 30  # wandb's own process writes it
  while b'eval/mlm' not in log.read_bytes() and time.monotonic() < end:
    time.sleep(0.1)
  assert b'eval/mlm' in log.read_bytes() and b'0.25' in log.read_bytes()
