"""Checkpoints: what comes back, what is kept, what damage and errors are met with."""

import json
import os
import random
import shutil
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checkpoint_cases import (
  State,
  abstract_of,
  assert_equal,
  flip,
  kept,
  kept_names,
  largest,
  mesh_of,
  spoil,
  state_of,
)
from ml_collections import ConfigDict
from mutation import mutation

from bertjax.checkpoint import checkpoints as checkpoints_lib
from bertjax.checkpoint import manifest, reading
from bertjax.errors import UserError

BEST = ConfigDict(dict(metric='eval/loss', mode='min'))


@pytest.fixture
def make(tmp_path):
  """Opens Checkpoints on tmp_path, closed at the end unless the test did."""
  opened = []

  def open_checkpoints(keep=3, best=BEST, directory=tmp_path / 'checkpoints'):
    opened.append(checkpoints_lib.Checkpoints(directory, keep, best))
    return opened[-1]

  yield open_checkpoints
  for checkpoints in opened:
    checkpoints.close()


def warnings(caplog) -> list[str]:
  """Our own so far."""
  return [record.getMessage() for record in caplog.records if record.name.startswith('bertjax')]


def three(make):
  """Checkpoints 10, 20 and 30 in a directory."""
  checkpoints = make()
  for step in (10, 20, 30):
    checkpoints.save(step, state_of(step), {'batch_sha256': f'hash {step}'}, wait=True)
  return checkpoints._directory


@pytest.mark.parametrize('saved, restored', [((2, 4), (4, 2)), ((4, 2), (1, 1)), ((1, 1), (2, 2))])
def test_the_state_comes_back_on_another_mesh(make, saved, restored):
  state = state_of(7, mesh_of(*saved))
  assert make().latest() is None and make().restore(abstract_of(state)) is None
  make().save(7, state, {'a': 1}, wait=True)
  abstract = abstract_of(state, mesh_of(*restored))
  step, got, meta = make().restore(abstract)
  assert (step, meta) == (7, {'a': 1})
  assert_equal(got, state)
  assert type(got) is State
  jax.tree.map(
    lambda x, a: pytest.fail(f'{x.sharding}') if x.sharding != a.sharding else None, got, abstract
  )


def test_a_state_may_be_donated_right_after_save(make):
  checkpoints = make()
  state = {'variables': {'w': jnp.full((1000, 1000), 1.0)}}
  overwrite = jax.jit(lambda s: jax.tree.map(lambda x: x * 0 - 1, s), donate_argnums=0)
  abstract = abstract_of(state)
  for step in range(1, 4):
    state = jax.tree.map(lambda x: jnp.full_like(x, step), state)  # noqa: B023
    checkpoints.save(step, state, {})
    state = overwrite(state)
    jax.block_until_ready(overwrite(jax.tree.map(jnp.copy, state)))
    np.testing.assert_array_equal(checkpoints.restore(abstract)[1]['variables']['w'], step)


DAMAGE = {
  'flipped bit': (lambda d: flip(largest(d)), 'expected sha256'),
  'truncated': (lambda d: os.truncate(largest(d), 5), 'got 5'),
  'missing': (lambda d: largest(d).unlink(), 'is missing'),
  'extra': (lambda d: (d / 'state' / 'stray').touch(), 'state/stray is extra'),
  'no manifest': (lambda d: (d / manifest.NAME).unlink(), 'manifest.json is missing'),
  'changed manifest': (
    lambda d: (d / manifest.NAME).write_text(
      (d / manifest.NAME).read_text().replace('hash 30', 'hash 31')
    ),
    'manifest.json: expected sha256',
  ),
  'torn manifest': (lambda d: os.truncate(d / manifest.NAME, 100), 'manifest.json is not the JSON'),
}


@pytest.mark.parametrize('kind', DAMAGE)
@mutation('if reads and (found := of_file(path)) != sha256:', 'if False:')
def test_a_damaged_newest_falls_back_with_a_warning(make, caplog, kind):
  directory = three(make)
  damage, said = DAMAGE[kind]
  damage(directory / '30')
  state = state_of(20)
  checkpoints = make()
  step, got, meta = checkpoints.restore(abstract_of(state))
  assert (step, meta) == (20, {'batch_sha256': 'hash 20'})
  assert_equal(got, state)
  damaged, instead = warnings(caplog)
  assert str(directory / '30') in damaged and said in damaged
  assert str(directory / '20') in instead
  checkpoints.save(30, state_of(30), {}, wait=True)  # its name is free again
  assert make().restore(abstract_of(state))[0] == 30
  assert (directory / '30.damaged').exists()


def test_every_bit_of_every_file_counts(make):
  directory = three(make) / '10'
  manifest.verify(directory)
  files = [p for p in directory.rglob('*') if p.is_file()]
  assert len(files) > 5
  rng = random.Random(0)
  for path in files:
    before = path.read_bytes()
    flip(path, rng.randrange(len(before)))
    with pytest.raises(manifest.Damaged, match=path.relative_to(directory).as_posix()):
      manifest.verify(directory)
    path.write_bytes(before)
  manifest.verify(directory)


def test_no_intact_checkpoint_stops_the_run_again_and_again(make, caplog):
  directory = three(make)
  for step in (10, 20):
    flip(largest(directory / str(step)))
  spoil(directory / '30', 'variables/params/layers/w')
  for _ in range(2):
    with pytest.raises(UserError, match='no checkpoint is intact, of 3, .*--workdir.*30 has NaN'):
      make().restore(abstract_of(state_of(0)))
  assert len(warnings(caplog)) == 6 and kept(directory) == [10, 20, 30]


def test_a_newer_format_is_refused_not_skipped(make, monkeypatch):
  directory = three(make)
  monkeypatch.setattr(manifest, 'FORMAT', manifest.FORMAT + 1)
  make().save(40, state_of(40), {}, wait=True)
  monkeypatch.undo()
  (directory / '40' / 'new').touch()  # what a newer format may leave out of its manifest
  with pytest.raises(ValueError, match=f'{directory}/40 has format 3.* reads up to 2: update'):
    make().restore(abstract_of(state_of(40)))


def test_other_arrays_are_refused_by_name(make):
  state = state_of(1)
  make().save(1, state, {}, wait=True)
  other = state._replace(step=jnp.float32(1), carry={'one': (), 'three': jnp.zeros((2, 2))})
  other.variables['params']['layers']['w'] = jnp.zeros((8, 32))
  with pytest.raises(ValueError) as error:
    make().restore(abstract_of(other))
  assert 'carry/three: expected float32[2, 2], got none' in str(error.value)
  with pytest.raises(
    ValueError, match=r'params/layers/w: expected float32\[8, 32\], got.*\[8, 16\]'
  ):
    make().restore(abstract_of(state._replace(variables=other.variables)))


@mutation('scored = [(sign * score, step)', 'scored = [(sign * score, -step)')
@pytest.mark.parametrize('mode, best', [('min', 4), ('max', 3)])
def test_the_newest_and_the_latest_of_the_best_are_kept(make, mode, best):
  by = ConfigDict(dict(metric='eval/loss', mode=mode))
  checkpoints = make(keep=2, best=by)
  losses = {1: 1.0, 2: 9.0, 3: 9.0, 4: 1.0, 5: None, 6: 3.0, 7: None}
  for step, loss in losses.items():
    scores = {} if loss is None else {'eval/loss': loss, 'eval/other': -loss}
    checkpoints.save(step, state_of(step), {}, wait=True)
    if scores:
      checkpoints.score(step, scores)
  checkpoints.wait()
  assert kept(checkpoints._directory) == [best, 6, 7]
  chosen = [reading.choose(checkpoints._directory.parent, step, by) for step in ('best', None, 6)]
  assert [path.name for path in chosen] == [str(best), '7', '6']
  assert make(keep=1).latest() == checkpoints._directory / '7'


def test_scores_come_later_and_are_not_part_of_what_is_verified(make):
  directory = three(make)
  checkpoints = make()
  assert checkpoints.scores(30) is None and checkpoints.has(30) and not checkpoints.has(40)
  checkpoints.score(30, {'eval/loss': 0.1 + 0.2})
  assert checkpoints.scores(30) == {'eval/loss': 0.1 + 0.2}
  manifest.verify(directory / '30')
  flip(directory / '30' / manifest.SCORES, 20)
  assert checkpoints.scores(30) is None  # to be found anew
  assert make().restore(abstract_of(state_of(30)))[0] == 30


def test_a_checkpoint_of_an_older_format_is_refused_but_its_variables_are_read(make, monkeypatch):
  monkeypatch.setattr(manifest, 'FORMAT', 1)
  directory = three(make)
  monkeypatch.undo()
  with pytest.raises(ValueError, match='has format 1, a run is resumed from format 2: start in a'):
    make().restore(abstract_of(state_of(30)))
  expected = state_of(30).variables
  assert_equal(reading.read_variables(directory / '30'), expected)


def test_the_one_before_is_deleted_only_when_the_new_one_is_complete(make, monkeypatch):
  checkpoints = make(keep=1)
  checkpoints.save(1, state_of(1), {}, wait=True)
  original, during = manifest.write, []

  def spy(*given):
    during.append(kept_names(checkpoints._directory))
    original(*given)

  monkeypatch.setattr(manifest, 'write', spy)
  checkpoints.save(2, state_of(2), {}, wait=True)
  assert during == [['1', '2.saving']]
  assert kept_names(checkpoints._directory) == ['2']
  with pytest.raises(ValueError, match='2 exists already'):
    checkpoints.save(2, state_of(2), {})


def full_disk(*_):
  raise OSError(28, 'No space left on device')


@pytest.mark.parametrize('surfaces', ['wait', 'close', 'restore'])
def test_an_error_in_the_background_surfaces(make, monkeypatch, surfaces):
  checkpoints = make()
  checkpoints.save(1, state_of(1), {}, wait=True)
  monkeypatch.setattr(manifest, 'write', full_disk)
  checkpoints.save(2, state_of(2), {})
  calls = dict(
    wait=checkpoints.wait,
    close=checkpoints.close,
    restore=lambda: checkpoints.restore(abstract_of(state_of(0))),
  )
  with pytest.raises(ValueError, match='checkpoint 2 could not be .*No space.*checkpoints/1: see'):
    calls[surfaces]()
  assert make().restore(abstract_of(state_of(0)))[0] == 1


@mutation('with self._explained(self._newest):', 'if True:')
def test_what_orbax_says_at_the_end_alone_is_said_as_of_the_last_save(make, monkeypatch):
  checkpoints = make()
  checkpoints.save(1, state_of(1), {}, wait=True)
  monkeypatch.setattr(checkpoints._saver, 'close', full_disk)
  with pytest.raises(ValueError, match='checkpoint 1 could not be .*No space'):
    checkpoints.close()


@mutation("shutil.rmtree(self._directory / f'{step}.saving', ignore_errors=True)", 'pass')
def test_the_next_save_is_the_next_try(make, monkeypatch):
  checkpoints, write = make(), manifest.write
  monkeypatch.setattr(manifest, 'write', full_disk)
  checkpoints.save(1, state_of(1), {})
  while not (said := checkpoints.failure()):
    time.sleep(0.01)
  assert 'checkpoint 1 could not be written' in said and not checkpoints.failure()
  assert kept_names(checkpoints._directory) == []
  monkeypatch.setattr(manifest, 'write', write)
  checkpoints.save(2, state_of(2), {}, wait=True)
  assert kept_names(checkpoints._directory) == ['2']


def test_a_save_that_hangs_is_an_error(make, monkeypatch):
  checkpoints, release = make(), threading.Event()
  monkeypatch.setattr(manifest, 'write', lambda *_: release.wait(60))
  monkeypatch.setattr(checkpoints_lib, 'TIMEOUT_S', 0.2)
  checkpoints.save(1, state_of(1), {})
  start = time.monotonic()
  with pytest.raises(ValueError, match='checkpoint 1 could not be written.*TimeoutError'):
    checkpoints.wait()
  assert time.monotonic() - start < 10
  release.set()


def test_leftovers_of_a_killed_save_are_cleaned(make):
  directory = three(make)
  shutil.copytree(directory / '30', directory / '40.saving' / 'state.orbax-checkpoint-tmp')
  shutil.copytree(directory / '30', directory / '5.deleted')
  assert make().restore(abstract_of(state_of(0)))[0] == 30
  assert kept(directory) == [10, 20, 30]


@mutation('tree = reader.metadata(directory / ', 'tree = reader.metadata(newest(directory) / ')
def test_a_checkpoint_that_is_read_is_hashed_once(make, tmp_path, monkeypatch):
  three(make)
  hashed, verify = [], manifest.verify
  monkeypatch.setattr(manifest, 'verify', lambda path: (hashed.append(path.name), verify(path)))
  found = reading.newest(tmp_path)
  assert_equal(reading.read_variables(found), state_of(30).variables)
  assert hashed == ['30']


def test_variables_of_nothing_damaged_or_another_model_are_refused(make, tmp_path):
  directory = three(make)
  with pytest.raises(ValueError, match='expected the workdir of a run.*no checkpoint there'):
    reading.newest(tmp_path / 'elsewhere')
  flip(largest(directory / '30'))
  with pytest.raises(ValueError, match='no checkpoint is intact, of 1'):
    reading.newest(directory / '30')
  with pytest.raises(ValueError, match='expected float32.*got none'):
    reading.read_variables(reading.newest(tmp_path), abstract_of({'other': jnp.zeros(2)}))


def test_the_manifest_says_what_is_inside(make):
  directory = three(make)
  record = json.loads((directory / '30' / manifest.NAME).read_text())
  assert record['step'] == 30 and record['format'] == manifest.FORMAT
  assert record['arrays']['variables/params/half'] == 'bfloat16[4, 4]'
  assert record['arrays']['step'] == 'int32[]'
