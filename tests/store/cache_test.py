"""The cache of plans: built once by whoever comes first, and never trusted blindly."""

import errno
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import pytest
from mutation import mutation
from toy_store import on_disk, recipe

from bertjax.errors import warn_once
from bertjax.examples import examples as examples_lib
from bertjax.store import cache
from bertjax.store.reader import open_store

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = recipe(pack=8)

# Opens the plan of the store argv[1] and prints what it is; building it takes argv[2] seconds. Each
# build is noted in the folder argv[3].
OPEN = """
import os, sys, time, logging
import grain  # another user may not be let in to this Python
logging.basicConfig(format='%(message)s')
sys.path.insert(0, 'tests/support')
from bertjax.errors import warn_once
from bertjax.examples import examples as examples_lib
from bertjax.store import npy_files
from bertjax.store.reader import open_store
from toy_store import recipe
write = npy_files.write_columns
def slow(directory, pieces):
  if not list(directory.iterdir()):
    open(f'{sys.argv[3]}/{os.getpid()}', 'w').close()
    time.sleep(float(sys.argv[2]))
  return write(directory, pieces)
npy_files.write_columns = slow
store = open_store(sys.argv[1])
fallback, user = (sys.argv[4:] + [None, None])[:2]
if user:
  os.setuid(int(user))
examples = examples_lib.make_examples(store, recipe(pack=8), 64, 0, fallback)
print(examples.rows, int(examples.column['a_start'].sum()), examples.plan)
"""


def start(store, seconds, built, *more):
  built.mkdir(exist_ok=True)
  return subprocess.Popen(
    [sys.executable, '-c', OPEN, str(store), str(seconds), str(built), *map(str, more)], cwd=ROOT,
    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
  )  # fmt: skip


def columns(examples):
  named = dict(examples.column, row_start=examples.row_start, row_example=examples.row_example)
  return {name: np.array(value) for name, value in named.items()}


def same(one, two):
  return one.keys() == two.keys() and all((one[k] == two[k]).all() for k in one)


def opened(store, fallback=None):
  return examples_lib.make_examples(store, CONFIG, 64, 0, fallback)


@pytest.fixture
def store(tmp_path):
  return on_disk(tmp_path / 'store')


@pytest.fixture
def expected(store):
  return columns(examples_lib.examples_in_memory(store, CONFIG, 64, 0))


@pytest.fixture(autouse=True)
def say_again():
  warn_once.cache_clear()  # what is said once, is said once in each test


@mutation("checksums.faults(path, record['files'], reads=small)", '[]')
@mutation('whole = sha256 == checksums.digest(record)', 'whole = True')
def test_flipped_bytes_of_a_plan_are_found_and_it_is_built_again(store, expected, caplog):
  """12 places in the record, 4 in every other file."""
  directory = opened(store).plan
  for name in sorted(p.name for p in directory.iterdir()):
    places = 12 if name == cache.RECORD else 4
    for place in range(places):
      file = directory / name
      whole = bytearray(file.read_bytes())
      whole[place * (len(whole) - 1) // (places - 1)] ^= 1 << place % 8
      file.write_bytes(whole)
      assert cache.fault(directory)
      caplog.clear()
      warn_once.cache_clear()
      assert same(columns(opened(store)), expected)
      assert name in caplog.text and 'is damaged and counts as missing' in caplog.text
      assert not cache.fault(directory)


@mutation('<= AT_ONCE\n', '>= 0\n')
def test_a_large_plan_is_opened_by_its_sizes_and_verified_later(store, expected, monkeypatch):
  monkeypatch.setattr(cache, 'AT_ONCE', 1000)
  directory = opened(store).plan
  whole = bytearray((directory / 'length.npy').read_bytes())
  whole[-4] ^= 1
  (directory / 'length.npy').write_bytes(whole)
  assert not same(columns(opened(store)), expected)
  assert 'length.npy: expected sha256' in cache.fault(directory)
  cache.discard(directory)
  assert same(columns(opened(store)), expected) and not cache.fault(directory)
  (directory / 'length.npy').write_bytes(whole[:-1])
  assert same(columns(opened(store)), expected)


def put_file(path):
  shutil.rmtree(path)
  path.write_text('not a directory')


DAMAGE = dict(
  empty_record=lambda p: (p / 'record.json').write_text('{}'),
  list_as_record=lambda p: (p / 'record.json').write_text('[]'),
  no_record=lambda p: (p / 'record.json').unlink(),
  binary_record=lambda p: (p / 'record.json').write_bytes(b'\xff\xfe\0'),
  file_in_its_place=put_file,
  folder_as_record=lambda p: ((p / 'record.json').unlink(), (p / 'record.json').mkdir()),
  missing_column=lambda p: (p / 'a_start.npy').unlink(),
)


@pytest.mark.parametrize('damage', DAMAGE)
def test_whatever_lies_in_the_place_of_a_plan_makes_way(store, expected, damage):
  directory = opened(store).plan
  DAMAGE[damage](directory)
  again = opened(store)
  assert same(columns(again), expected) and again.plan == directory
  assert not cache.fault(directory) and len(list(directory.parent.iterdir())) == 1


@mutation(
  'npy_files.write_columns(path, _pieces(store, recipe, spec))',
  "npy_files.write_columns(path, build.__dict__.setdefault('all', _pieces(store, recipe, spec)))",
)
def test_a_full_disk_makes_it_fall_back(store, expected, tmp_path, monkeypatch, caplog):
  """It is noticed after a part of the plan was written."""
  sync, full = os.fsync, [store.path]

  def refuse(descriptor):
    where = os.readlink(f'/proc/self/fd/{descriptor}')
    if any(where.startswith(str(path)) for path in full):
      raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    sync(descriptor)

  monkeypatch.setattr(os, 'fsync', refuse)
  examples = opened(store, tmp_path / 'cache')
  assert same(columns(examples), expected) and examples.plan.parent == tmp_path / 'cache'
  assert list((store.path / 'plans').iterdir()) == []  # nothing is left behind
  full.append(tmp_path / 'cache2')
  examples = opened(store, tmp_path / 'cache2')
  assert same(columns(examples), expected) and examples.plan is None
  assert 'No space left on device' in caplog.text and 'kept in memory' in caplog.text


@pytest.mark.skipif(os.getuid() != 0, reason='becomes another user')
def test_a_cache_of_another_user_makes_it_fall_back(expected, store):
  with tempfile.TemporaryDirectory() as folder:
    os.chmod(folder, 0o755)
    shutil.copytree(store.path, f'{folder}/store')
    opened(open_store(f'{folder}/store'))
    os.chmod(f'{folder}/store/plans', 0o700)
    for name in ('built', 'cache'):
      (pathlib.Path(folder) / name).mkdir()
      os.chown(f'{folder}/{name}', 65534, 65534)
    process = start(f'{folder}/store', 0, pathlib.Path(folder, 'built'), f'{folder}/cache', 65534)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert out.split()[1] == str(expected['a_start'].sum()) and f'{folder}/cache' in out
    assert 'no plan can be kept in' in err and 'Permission denied' in err


@mutation('if (figures := _found(path, identity)) is not None:\n      return figures\n    ', '')
def test_of_two_processes_one_builds_and_the_other_waits(store, expected, tmp_path):
  running = [start(store.path, 3, tmp_path / 'built') for _ in range(2)]
  done = [process.communicate(timeout=240) for process in running]
  assert [process.returncode for process in running] == [0] * 2, done
  builders = [path.name for path in (tmp_path / 'built').iterdir()]
  assert len(builders) == 1
  assert {out.split()[1] for out, _ in done} == {str(expected['a_start'].sum())}
  waited = [err for _, err in done if f'waiting for process {builders[0]} on ' in err]
  assert waited and len(list((store.path / 'plans').iterdir())) == 1


@mutation('    _sweep(root, name if alone else', '    str(name if alone else')
def test_a_killed_build_is_taken_over_and_swept_and_one_under_way_is_not(store, expected, tmp_path):
  plans = store.path / 'plans'
  for length in (32, 40):  # the second waits for nobody
    process = start(store.path, 600, tmp_path / 'built')
    try:
      end = time.monotonic() + 120
      count = len(list((tmp_path / 'built').iterdir()))
      while len(list((tmp_path / 'built').iterdir())) == count and time.monotonic() < end:
        time.sleep(0.02)
      examples_lib.make_examples(store, CONFIG, length, 0)  # another plan
      assert len(list(plans.glob('.building-*'))) == 1
    finally:
      process.kill()
      process.communicate()
  examples_lib.make_examples(store, CONFIG, 48, 0)
  assert not list(plans.glob('.building-*'))
  assert same(columns(opened(store)), expected)
  assert sorted(p.suffix for p in plans.iterdir()) == [''] * 4
