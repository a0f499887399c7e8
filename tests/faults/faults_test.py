"""Kills, signals, damages, disagreements, full disks and races, on real runs."""

import subprocess

import pytest
from mutation import mutation

from tests.faults import bench, damages, disagreements, disks, kills, races

CASES = [case for kind in (races, disks, disagreements, damages, kills) for case in kind.CASES]


@pytest.fixture(scope='module')
def shared(tmp_path_factory) -> bench.Shared:
  return bench.Shared(tmp_path_factory.mktemp('shared'))


@mutation('  digests.check_start(config)\n', '', case='hosts that disagree: --config.seed=1')
@mutation(
  "  devices |= {'--processes': hosts.told_count()}\n",
  '',
  case='hosts that disagree: --processes=3',
)
@mutation(
  '  digests.check_data(run)\n', '', case='hosts that disagree: other tokens under the same name'
)
@mutation(
  "  hosts.require_same('its settings of JAX and XLA', settings(os.environ), remedy)\n",
  '',
  case='hosts that disagree: JAX_DEFAULT_MATMUL_PRECISION=highest',
)
@mutation(
  "hosts.gather('stop/steps', str(here), GRACE_S)",
  '[str(here + hosts.index())]',
  case='SIGTERM, two processes: process 1 while stepping',
)
@mutation(
  'SILENT_S = 200',
  'SILENT_S = 40',
  case='processes that stand still: 80 s between steps',
)
@mutation(
  'hosts.told(key, hosts.WAIT_S)',
  'hosts.told(key, 1.0)',
  case='processes that stand still: 80 s between steps',
)
@mutation(
  'self._path, reason\n        )\n        return',
  'self._path, reason\n        )\n        self._lines.clear()',
  case='full disks: the whole workdir for some steps',
)
@mutation(
  "    except OSError as error:\n      self._progress.note(f'curves",
  "    except ValueError as error:\n      self._progress.note(f'curves",
  case='full disks: TensorBoard and curves.png all along',
)
@pytest.mark.full
@pytest.mark.parametrize('case', CASES, ids=lambda case: f'{case.group}: {case.name}')
def test_all_goes_as_promised(case, tmp_path, shared):
  made = bench.Bench(tmp_path, case.name, shared)
  with made.closing:
    case.work(made)


@mutation('  assert found == expected,', '  assert found,', file='tests/faults/bench.py')
def test_metrics_are_compared_to_the_bit(tmp_path):
  for name, loss in (('a', 1.0), ('b', 1.0), ('c', 1.0000001)):
    (tmp_path / name).mkdir()
    line = f'{{"step": 1, "loss": {loss}, "time/input": {hash(name)}}}\n'
    (tmp_path / name / 'metrics.jsonl').write_text(line)
  bench.bit_equal(tmp_path / 'a', tmp_path / 'b')
  with pytest.raises(AssertionError, match='1.0000001'):
    bench.bit_equal(tmp_path / 'a', tmp_path / 'c')


def test_a_process_that_does_not_end_is_ended():
  process = subprocess.Popen(['sleep', '600'])
  with pytest.raises(subprocess.TimeoutExpired):
    bench.ended(process, 0.1)
  assert process.poll() is not None
