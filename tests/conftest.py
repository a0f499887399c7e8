"""Test-wide switches: eight simulated devices, strict rank promotion, compiled code on disk."""

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

import hearing

from bertjax.machine import compiled

hearing.let_children_hear()
os.environ.pop('PYTHONUNBUFFERED', None)  # what children say waits in a buffer, as a user's does
os.environ.setdefault('JAX_PLATFORMS', 'cpu')
os.environ['JAX_SKIP_CUDA_CONSTRAINTS_CHECK'] = '1'  # as preflight of cards sets it
os.environ['XLA_FLAGS'] = (
  os.environ.get('XLA_FLAGS', '') + ' --xla_force_host_platform_device_count=8'
)
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
# By the environment, which all that a test starts has from here.
compiled.keep(pathlib.Path('~/.cache/bertjax-tests').expanduser())
os.environ['JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'] = '0.05'

import cases  # noqa: E402  (after the environment that jax reads)
import compiling  # noqa: E402
import jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402

# Strict dtype promotion breaks optax and flax's bfloat16 norm, so it stays standard.
jax.config.update('jax_numpy_rank_promotion', 'raise')

SHARED = pathlib.Path(__file__).resolve().parents[2] / 'shared' / 'data'


@pytest.fixture(scope='session')
def shared() -> pathlib.Path:
  """The development data beside the repository; tests that need it skip where it is absent."""
  if not SHARED.exists():
    pytest.skip(f'no development data at {SHARED}')
  return SHARED


@pytest.fixture(scope='session')
def golden(shared) -> Callable[[str], tuple]:
  """Name -> the arrays that an original of the family has left, and what it was configured with."""

  def load(name):
    found = np.load(shared / 'golden' / 'family' / f'{name}.npz')
    return found, json.loads(str(found['config']))

  return load


@pytest.fixture(scope='session')
def rich_store(tmp_path_factory) -> pathlib.Path:
  """Random text with all that a config may ask for, some of it held out; not to be changed."""
  path = tmp_path_factory.mktemp('rich') / 'store'
  cases.write_rich_store(path)
  return path


@pytest.fixture
def one_device(monkeypatch) -> list:
  """Runs of the test have the first device alone; returns all of them."""
  devices = jax.devices()
  monkeypatch.setattr(jax, 'devices', lambda: devices[:1])
  return devices


@pytest.fixture(autouse=True, scope='module')
def compiled_code_ends_with_its_file():
  """What a file's tests have compiled serves no other; a worker would grow to 5 GB."""
  yield
  jax.clear_caches()


@pytest.fixture(autouse=True)
def processes_end_with_their_test():
  """Kills what a test has started and not waited for: it failed, and left it to train on."""
  started, init = [], subprocess.Popen.__init__

  def begin(process, *args, **options):
    init(process, *args, **options)
    started.append(process)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(subprocess.Popen, '__init__', begin)
    yield
  for process in started:
    process.kill()
    process.wait()


def pytest_configure(config):
  """The quick tier compiles much to compute little, so it does that with little care; the slow tier
  and its parts have the code that users have."""
  compiling.quickly('not full' in config.option.markexpr)


SLOW = {'sentencepiece', 'seqio', 'sklearn', 'tensorflow', 'torch', 'transformers'}


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
  """Refuses a test file that imports a library of seconds: each worker imports every file."""
  before = set(sys.modules)
  report = yield
  if slow := SLOW & (set(sys.modules) - before):
    report.outcome = 'failed'
    report.longrepr = f'imports {sorted(slow)}: do that in a test, or by tests/support/slow_imports'
  return report


TUNING = """
  answers choice datasets distill families finetune labelled patience probe
  segments spans_ tagging tasks taught_layers teachers transfer
"""
# The parts of the slow tier, each under 45 minutes on 2 cores, the mutations apart: how the paths
# of its tests begin. A test is in the first part that has its path.
PARTS = {
  'kernels': ('kernels/', 'tools/'),
  'models': ('models/', 'objectives/', 'evals/', 'optim/', 'formats/', 'export/', 'use/'),
  'systems': ('contract_test', 'configs_test', 'docs_test', 'sharding_test'),
  'tuning': tuple(f'train/{name}' for name in TUNING.split()),
  'training': ('train/',),
  'runs': (
    'checkpoint/',
    'malicious_test',
    'sources/',
    'text/',
    'vocab',
    'store/',
    'examples/',
    'metrics/',
    'launch/',
    'machine/',
    'faults/',
    'config/',
    'prepare',
    'sweep',
    'compare',
    'extending',
    'walk',
  ),
  'learning': ('overfit_test', 'known_language/'),
  'mutations': ('mutations_test',),
}


def pytest_collection_modifyitems(items):
  """Marks each slow test with its part, so that `pytest -m runs` is a part of the slow tier."""
  here = pathlib.Path(__file__).parent
  for item in filter(lambda item: item.get_closest_marker('full'), items):
    path = item.path.relative_to(here).as_posix()
    part = next((part for part, starts in PARTS.items() if path.startswith(starts)), None)
    if part is None:
      # Not pytest.UsageError, whose words are lost where a worker raises it.
      raise ValueError(f'{path} is slow: name its part in PARTS of tests/conftest.py')
    item.add_marker(part)
