"""Two processes that do not agree: refused by host, key and both values before any step."""

import shutil

import numpy as np
import processes
import pytest
from mutation import mutation
from processes import ROOT

from tests.faults.bench import ended, log

pytestmark = pytest.mark.full


@pytest.fixture
def check(rich_store, tmp_path):
  """A function that starts two processes, the second with other flags; both are told, and end."""

  def differing(said, *flags, store=rich_store, **given):
    workdir = tmp_path / 'run'
    flags = [flag.format(tmp_path) for flag in flags]
    both = processes.start_pair(store, workdir, f'--workdir={workdir}', each=((), flags), **given)
    statuses = [ended(process) for process in both]
    text = log(workdir, 0)
    assert 'loss' not in text, f'they trained on: {text[-500:]}'
    assert statuses == [1, 1] and said in text and 'process 1 on ' in text, text[-2000:]
    for number in range(2):
      assert 'Traceback' not in log(workdir, number), log(workdir, number)[-2000:]
    assert not (workdir / 'config.json').exists()

  return differing


FLAGS = {
  '--config.seed=1': 'config.seed is 1 there and 0 here',
  '--processes=3': '--processes is 3 there and 2 here',
  '--workdir={}/other': 'the workdir: owner.json of ',
}


@pytest.mark.parametrize('flag', FLAGS)
@mutation('  digests.check_start(config)\n', '', case='--config.seed=1')
@mutation("  devices |= {'--processes': hosts.told_count()}\n", '', case='--processes=3')
def test_another_flag(check, flag):
  check(FLAGS[flag], flag)


VARIABLES = dict(
  XLA_FLAGS=('--xla_force_host_platform_device_count=1', 'count is 1 there'),
  JAX_DEFAULT_MATMUL_PRECISION=('highest', 'precision is '),
)


@pytest.mark.parametrize('name', VARIABLES)
@mutation(
  "  hosts.require_same('its settings of JAX and XLA', settings(os.environ), remedy)\n",
  '',
  case='JAX_DEFAULT_MATMUL_PRECISION',
)
def test_another_variable(check, name):
  value, said = VARIABLES[name]
  check(said, envs=({}, {name: value}))


def test_another_store(check, rich_store, tmp_path):
  shutil.copytree(rich_store, tmp_path / 'store')
  check('config.data.store is', '--config.data.store={}/store')


@mutation('  digests.check_data(run)\n', '')
def test_other_tokens_under_the_same_name(check, rich_store, tmp_path):
  """Each host has a disk of its own, with another store under the same name."""
  roots = [tmp_path / name for name in 'ab']
  for root in roots:
    root.mkdir()
    for name in ('bertjax', 'configs'):
      (root / name).symlink_to(ROOT / name)
    shutil.copytree(rich_store, root / 'store')
  file = roots[1] / 'store/tokens-00000.npy'
  np.save(file, np.roll(np.load(file), 1))
  check('its data: first batch', roots=roots, store='store')


def test_another_version_of_a_library(check, tmp_path):
  """What says its version is found before the true one."""
  info = tmp_path / 'fake/optax-0.0.1.dist-info'
  info.mkdir(parents=True)
  (info / 'METADATA').write_text('Metadata-Version: 2.1\nName: optax\nVersion: 0.0.1\n')
  check("optax is '0.0.1' there", envs=({}, dict(PYTHONPATH=f'{tmp_path}/fake:{ROOT}')))


def test_other_code(check, tmp_path):
  """A comment more in one file: nobody looks at what it means."""
  root = tmp_path / 'root'
  for name in ('bertjax', 'configs'):
    shutil.copytree(ROOT / name, root / name)
  with open(root / 'bertjax/train/step.py', 'a') as file:
    file.write('# other\n')
  check('its software: bertjax is ', envs=({}, dict(PYTHONPATH=str(root))), roots=(ROOT, root))
