"""Damage to a store: a byte that changed in any file of it is found, and the file is named."""

import json
import pathlib

import forks
import numpy as np
import pytest
from mutation import mutation
from toy_store import on_disk, recipe, signed

from bertjax.examples import examples as examples_lib
from bertjax.store import verify
from bertjax.store.reader import open_store

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def store(tmp_path):
  """A store of three parts with units, a column, a vocabulary and a held-out store."""
  path = tmp_path / 'store'
  on_disk(path, parts=3, units=True, vocabulary=True)
  on_disk(path / 'heldout', documents=20, seed=1)
  return path


def flipped(path, place, bit=0):
  """Flips one bit of a file; returns what puts it back."""
  whole = path.read_bytes()
  path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
  return lambda: path.write_bytes(whole)


def places(path, count):
  """So many places of a file, the first and the last among them."""
  return np.linspace(0, path.stat().st_size - 1, count).astype(int).tolist()


def named(path):
  """The files that are said to be damaged."""
  return [said.partition(': ')[0] for said in verify.faults(path)]


@mutation('/ name, self._arrays[kind], dtype', '/ name, self._arrays[kind], np.dtype(np.uint32)')
def test_a_store_is_what_was_written(store):
  assert named(store) == []
  meta = open_store(store).meta
  on_the_disk = {str(p.relative_to(store)) for p in store.rglob('*') if p.is_file()}
  assert {p for p in on_the_disk if not p.startswith('heldout/')} == meta['sha256'].keys()


@mutation('(path / HELD_OUT).exists():\n    yield from faults', 'False:\n    yield from faults')
@mutation('reads and (found := of_file(path)) != sha256:', 'reads and (found := sha256) != sha256:')
def test_every_flipped_byte_is_found(store):
  """10 places in each part of tokens, and 4 in every other file."""
  tried = 0
  for file in sorted(p for p in store.rglob('*') if p.is_file() and p.name != 'store.json'):
    for number, place in enumerate(places(file, 10 if file.name.startswith('tokens') else 4)):
      mend = flipped(file, place, number % 8)
      assert named(store) == [str(file)], place
      mend()
      tried += 1
  assert tried >= 4 * 10 + 4 * 10 and named(store) == []


@mutation('  if got != said:\n', '  if False:\n')
def test_a_changed_description_is_refused(store):
  """A changed id of a special token would mask with another word."""
  text = (store / 'store.json').read_text()
  assert text.count('"mask": 4') == 1
  (store / 'store.json').write_text(text.replace('"mask": 4', '"mask": 5'))
  with pytest.raises(ValueError, match='store.json was changed or damaged: .*Make it again'):
    open_store(store)
  for place in places(store / 'store.json', 40):
    (store / 'store.json').write_text(text)
    flipped(store / 'store.json', place)
    with pytest.raises(ValueError, match=r'store(\.json)?'):
      open_store(store)


@pytest.mark.parametrize('name', ['tokens-00001.npy', 'vocab/vocab.txt'])
def test_files_that_are_cut_short_or_missing_are_named(store, name):
  whole = (store / name).read_bytes()
  for kept in (len(whole) - 1, len(whole) // 2, 0):
    (store / name).write_bytes(whole[:kept])
    assert named(store) == [str(store / name)]
    with pytest.raises(
      ValueError, match=f'{name}: expected .* bytes as store.json says, got {kept}'
    ):
      open_store(store)
  (store / name).unlink()
  assert named(store) == [str(store / name)]
  with pytest.raises(ValueError, match=f'{name}: expected .* no file'):
    open_store(store)


@pytest.mark.parametrize('name', ['/etc/passwd', 'columns/../../x.npy'])
@mutation("if name.startswith('/') or '..' in pathlib.PurePosixPath(name).parts:", 'if False:')
def test_a_store_that_names_files_outside_of_itself_is_refused(store, name):
  meta = json.loads((store / 'store.json').read_text())
  meta['files'] |= {name: 0}
  (store / 'store.json').write_text(json.dumps(signed(meta)))
  for call in (lambda: open_store(store), lambda: list(verify.faults(store))):
    with pytest.raises(ValueError, match='which is outside of the store'):
      call()


def prepare(*flags):
  return forks.run('bertjax.prepare', *flags, cwd=ROOT)


@mutation('  if found:\n    sys.exit', '  if False:\n    sys.exit')
def test_the_command_names_every_damaged_file(store):
  examples_lib.make_examples(open_store(store), recipe(), 64, 0)
  verified = prepare('--verify', f'--output={store}')
  assert verified.returncode == 0 and 'is what was written' in verified.stdout, verified.stderr
  plan = next(store.glob('plans/*/length.npy'))
  damaged = [store / 'tokens-00002.npy', store / 'heldout/counts.npy', plan]
  for file in damaged:
    flipped(file, file.stat().st_size - 3)
  found = prepare('--verify', f'--output={store}')
  assert found.returncode == 1 and '3 files of' in found.stderr
  assert [line.partition(': ')[0] for line in found.stdout.splitlines()] == list(map(str, damaged))
