"""A run over damaged data stops, names the file and saves nothing; in one process and in two."""

import pathlib
import shutil
import types
from typing import Any, cast

import numpy as np
import pytest
from checkpoint_cases import flip
from mutation import mutation
from processes import finish, run, start_pair
from toy_store import recipe

from bertjax.examples import examples as examples_lib
from bertjax.machine import hosts
from bertjax.store import cache
from bertjax.store.reader import open_store
from bertjax.train.watch import Step
from bertjax.train.watch.verification import Damaged, Verification


@pytest.fixture
def store(rich_store, tmp_path):
  """A copy that may be damaged."""
  shutil.copytree(rich_store, tmp_path / 'store')
  return tmp_path / 'store'


@mutation('    self._raise(step.done)\n    return {}', '    return {}')
@mutation('isinstance(error, Damaged | finite.NotFinite)', 'isinstance(error, finite.NotFinite)')
def test_a_run_stops_at_a_damaged_file_and_saves_nothing(store, tmp_path):
  flip(store / 'tokens-00000.npy')
  workdir = tmp_path / 'run'
  done = run(store, workdir, '--config.checkpoint_steps=1')
  assert done.returncode == 1 and 'Traceback' not in done.stderr
  assert f'damaged: {store}/tokens-00000.npy: expected sha256' in done.stderr
  assert not list((workdir / 'checkpoints').glob('*'))


@pytest.mark.full
def test_a_run_stops_at_damaged_held_out_rows(store, tmp_path):
  whole = dict(config='roberta.py:test')  # one phase, which a longer run does not move
  workdir = tmp_path / 'longer'
  finish(store, workdir, '--config.total_steps=6', **whole)
  flip(store / 'heldout/tokens-00000.npy')
  done = run(store, workdir, **whole)
  assert done.returncode == 1 and 'heldout/tokens-00000.npy' in done.stderr


def after(done):
  return Step(done, cast('Any', None), 0, None, {}, {})


@mutation('      for plan in self._plans:\n', '      for plan in ():\n')
@mutation('if found and self._done == self._start:', 'if False:')
def test_a_damaged_plan_stops_the_run_and_is_built_again(store, monkeypatch):
  """One that is too large to be read when it is opened."""
  monkeypatch.setattr(cache, 'AT_ONCE', 0)
  opened = open_store(store)
  make = lambda: examples_lib.make_examples(opened, recipe(), 64, 0)
  expected = np.array(make().column['length'])
  flip(make().plan / 'length.npy')
  fed = make()
  reader = types.SimpleNamespace(data=types.SimpleNamespace(reader='store'))
  given = types.SimpleNamespace(
    store=opened, config=reader, parts=[types.SimpleNamespace(examples=fed)]
  )
  verified = Verification(given, 3, None, print)
  verified._thread.join()
  said = 'length.npy: expected sha256 .* built again at the next start'
  with pytest.raises(Damaged, match=f'{said}$'):
    verified.before(4)  # the first step of this process has not read it
  for ask in (lambda: verified.before(5), lambda: verified.saved(after(4), None), verified.finish):
    with pytest.raises(Damaged, match=f'{said}.* since step 3: remove .* after step 3$'):
      ask()
  np.testing.assert_array_equal(make().column['length'], expected)


@mutation("(said := checksums.fault(path / name, size, '', reads=False))", '(said := "")')
@mutation("where = f'{hosts.named(hosts.index())}: ' if hosts.count() > 1 else ''", "where = ''")
def test_a_file_that_became_shorter_after_it_was_read_is_found_at_the_next_save(store, monkeypatch):
  reader = types.SimpleNamespace(data=types.SimpleNamespace(reader='store'))
  given = types.SimpleNamespace(store=open_store(store), config=reader, parts=[])
  verified = Verification(given, 0, None, print)
  verified._thread.join()
  verified.saved(after(1), None)
  with open(store / 'tokens-00000.npy', 'r+b') as file:
    file.truncate(file.seek(0, 2) - 2)  # within a page: no signal, zeros are read
  monkeypatch.setattr(hosts, 'count', lambda: 2)
  monkeypatch.setattr(hosts, 'named', lambda process: f'process {process} on a')
  monkeypatch.setattr(hosts, 'gather', lambda name, value: ['', value])
  with pytest.raises(Damaged, match=f'^process 0 on a: damaged: {store}/tokens-.* bytes, got'):
    verified.saved(after(2), None)
  verified._found = ''
  shutil.move(store, store.with_name('away'))  # what is mapped stays
  verified.saved(after(3), None)


@pytest.mark.full
@mutation(
  "    found = [said for said in hosts.gather(f'damage/{where}', self._found) if said]\n",
  '    found = [self._found] if self._found else []\n',
)
def test_two_processes_stop_together(store, tmp_path):
  flip(store / 'tokens-00000.npy')
  workdir = tmp_path / 'run'
  both = start_pair(store, workdir, '--config.total_steps=6000')
  assert [process.wait(300) for process in both] == [1, 1]
  for number in range(2):
    assert 'damaged: ' in pathlib.Path(f'{workdir}.{number}.log').read_text()
  assert not list((workdir / 'checkpoints').glob('*'))
