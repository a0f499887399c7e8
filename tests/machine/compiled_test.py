"""Compiled code that is kept on the host."""

import os
import subprocess

import jax
import pytest
from mutation import mutation
from processes import ROOT, command, lines

from bertjax.machine import compiled


@mutation("hashlib.sha256(''.join(known)", "hashlib.sha256(''")
@mutation('-{len(os.sched_getaffinity(0))}', '')
def test_each_kind_and_number_of_cpus_has_its_code(tmp_path, monkeypatch):
  def directory(features, speed, cores=2):
    monkeypatch.setattr(os, 'sched_getaffinity', lambda _: range(cores))
    (tmp_path / 'cpuinfo').write_text(f'flags : {features}\ncpu MHz : {speed}\n' * 2)
    monkeypatch.setattr(compiled, '_CPU', tmp_path / 'cpuinfo')
    found = {}
    compiled.keep(tmp_path, found)
    return found['JAX_COMPILATION_CACHE_DIR']

  old, new, busy = directory('avx2', 1000), directory('avx2 avx512f', 1000), directory('avx2', 900)
  assert old == busy != new and old.startswith(f'{tmp_path}/compiled/')
  assert directory('avx2', 1000, cores=1) != old


@pytest.mark.parametrize('named', ['mine', '/shared/mine', 'gs://b/mine'])
@mutation("named or str(cache / 'compiled')", "str(cache / 'compiled')")
@mutation('above if _OF_CPUS.fullmatch(last) else root', 'root')
def test_a_directory_of_the_user_has_one_for_each_too(named, tmp_path, monkeypatch):
  """Also where a process with more cores has started this one, and so has named its own."""
  found = {'JAX_COMPILATION_CACHE_DIR': named}
  compiled.keep(tmp_path, found)
  many = found['JAX_COMPILATION_CACHE_DIR']
  monkeypatch.setattr(os, 'sched_getaffinity', lambda _: range(1))
  compiled.keep(tmp_path, found)
  one = found['JAX_COMPILATION_CACHE_DIR']
  assert many.rpartition('/')[0] == one.rpartition('/')[0] == named
  assert many.rpartition('-')[0] == one.rpartition('-')[0] and one.endswith('-1')


@mutation('in (None, named):', 'in ():')
def test_jax_that_is_there_already_is_told_too(tmp_path, monkeypatch):
  before = jax.config.jax_compilation_cache_dir
  try:
    for had, gets in ((None, str(tmp_path)), ('mine', 'mine')):
      jax.config.update('jax_compilation_cache_dir', had)
      monkeypatch.delenv(compiled.DIRECTORY, raising=False)
      compiled.keep(tmp_path)
      assert compiled.DIRECTORY not in os.environ  # which is the user's, and of others of theirs
      assert str(jax.config.jax_compilation_cache_dir).startswith(gets)
  finally:
    jax.config.update('jax_compilation_cache_dir', before)


@pytest.mark.full
@mutation('compiled.keep(copies.cache())', 'pass', file='bertjax/main.py')
@mutation('    _descend(),\n', '    _descend(),\n    optax.scale(1 + schedule(1)),\n')
def test_a_second_run_compiles_nothing_that_the_first_has(rich_store, tmp_path):
  """Though it is longer and has another rate; its schedule alone, which is small, is another."""
  env = {k: v for k, v in os.environ.items() if not k.startswith('JAX_') and k != 'XLA_FLAGS'}
  env |= dict(
    JAX_PLATFORMS='cpu', BERTJAX_CACHE=str(tmp_path), PYTHONPATH=str(ROOT),
    JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS='0',
  )  # fmt: skip
  found, losses = [], []
  others = ('--config.total_steps=6', '--config.optimizer.schedule.peak=2e-3')
  for name, changes in (('first', ('--config.total_steps=5',)), ('second', others)):
    subprocess.run(
      command(rich_store, tmp_path / name, *changes),
      cwd=ROOT, env=env, check=True, capture_output=True, timeout=600,
    )  # fmt: skip
    found.append({path.name for path in tmp_path.glob('compiled/*/*-cache')})
    losses.append([line['loss'] for line in lines(tmp_path / name) if 'loss' in line])
  assert any('train_step' in name for name in found[0])
  assert all(name.startswith('jit_schedule') for name in found[1] - found[0])
  assert losses[0][0] == losses[1][0]
