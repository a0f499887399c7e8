"""Two processes that do not agree: refused by host, key and both values before any step."""

import functools
import pathlib
import shutil

import numpy as np
import processes
from processes import ROOT

from tests.faults.bench import SECONDS, Bench, Case, ended, log


def differing(bench: Bench, said: str, *flags: str, **given) -> None:
  """Starts two processes, the second with other flags; both must be told, and end."""
  workdir = bench.folder / 'run'
  store = given.pop('store', bench.store)
  both = processes.start_pair(store, workdir, f'--workdir={workdir}', each=((), flags), **given)
  bench.watch(*both)
  statuses = [ended(process, SECONDS) for process in both]
  text = log(workdir, 0)
  if 'loss' in text:
    raise AssertionError(f'they trained on: {text[-500:]}')
  assert statuses == [1, 1] and said in text and 'process 1 on ' in text, text[-2000:]
  for number in range(2):
    assert 'Traceback' not in log(workdir, number), log(workdir, number)[-2000:]
  assert not (workdir / 'config.json').exists()


def other_library(bench: Bench) -> None:
  """What says its version is found before the true one."""
  info = bench.folder / 'fake/optax-0.0.1.dist-info'
  info.mkdir(parents=True)
  (info / 'METADATA').write_text('Metadata-Version: 2.1\nName: optax\nVersion: 0.0.1\n')
  path = f'{bench.folder}/fake:{ROOT}'
  differing(bench, "optax is '0.0.1' there", envs=({}, dict(PYTHONPATH=path)))


def other_code(bench: Bench) -> None:
  """A comment more in one file: nobody looks at what it means."""
  root = bench.folder / 'root'
  shutil.copytree(ROOT / 'bertjax', root / 'bertjax')
  shutil.copytree(ROOT / 'configs', root / 'configs')
  with open(root / 'bertjax/train/step.py', 'a') as file:
    file.write('# other\n')
  environment = ({}, dict(PYTHONPATH=str(root)))
  differing(bench, 'its software: bertjax is ', envs=environment, roots=(ROOT, root))


def other_tokens(bench: Bench) -> None:
  """Each host has a disk of its own, with another store under the same name."""
  roots = [bench.folder / name for name in 'ab']
  for root in roots:
    root.mkdir()
    for name in ('bertjax', 'configs'):
      (root / name).symlink_to(ROOT / name)
    shutil.copytree(bench.store, root / 'store')
  file = roots[1] / 'store/tokens-00000.npy'
  np.save(file, np.roll(np.load(file), 1))
  differing(bench, 'its data: first batch', roots=roots, store='store')


def key(said: str, *flags: str, **env: str) -> Case:
  """A case of a key or a variable that only the second process is given."""
  name = ', '.join([*flags, *(f'{k}={v}' for k, v in env.items())])
  work = functools.partial(differing, envs=({}, env))
  return Case('hosts that disagree', name, lambda bench: work(bench, said, *flags))


def other_store(bench: Bench) -> None:
  path = pathlib.Path(shutil.copytree(bench.store, bench.folder / 'store'))
  differing(bench, 'config.data.store is', f'--config.data.store={path}')


def other_workdir(bench: Bench) -> None:
  differing(bench, 'the workdir: owner.json of ', f'--workdir={bench.folder}/other')


CASES = [
  key('config.seed is 1 there and 0 here', '--config.seed=1'),
  key('config.model.dropout is 0.5 there', '--config.model.dropout=0.5'),
  key('--processes is 3 there and 2 here', '--processes=3'),
  key('count is 1 there', XLA_FLAGS='--xla_force_host_platform_device_count=1'),
  key('precision is ', JAX_DEFAULT_MATMUL_PRECISION='highest'),
  key('jax_enable_x64 is True there', JAX_ENABLE_X64='1'),
  Case('hosts that disagree', 'another store', other_store),
  Case('hosts that disagree', 'another workdir', other_workdir),
  Case('hosts that disagree', 'other tokens under the same name', other_tokens),
  Case('hosts that disagree', 'the version of a library', other_library),
  Case('hosts that disagree', 'the code', other_code),
]
