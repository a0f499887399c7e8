"""Small texts, stores and plans for the campaign, and the commands that make them."""

import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import prepare_runs
import toy_store
from processes import ROOT

from bertjax.examples import examples as examples_lib
from bertjax.store import cache
from bertjax.store.reader import open_store

# Opens the plan of the store argv[1]; building it takes argv[2] seconds longer, at length argv[3].
PLAN = """
import logging, sys, time
logging.basicConfig(format='%(message)s')
sys.path.insert(0, 'tests/support')
import toy_store
from bertjax.examples import examples
from bertjax.store import npy_files
from bertjax.store.reader import open_store
write = npy_files.write_columns
def slow(directory, pieces):
  (directory / 'begun').touch()
  time.sleep(float(sys.argv[2]))
  (directory / 'begun').unlink()
  return write(directory, pieces)
npy_files.write_columns = slow
examples.make_examples(open_store(sys.argv[1]), toy_store.recipe(pack=8), int(sys.argv[3]), 0)
"""


def text(folder: pathlib.Path, documents: int) -> pathlib.Path:
  """A text of so many documents, with a vocabulary beside it."""
  prepare_runs.write_vocabulary(folder)
  prepare_runs.write_text(folder / 'text.txt', documents)
  return folder / 'text.txt'


def prepare_command(given: pathlib.Path, output: pathlib.Path, *more: str) -> list[str]:
  return [
    sys.executable, '-m', 'bertjax.prepare', f'--input={given}', f'--output={output}',
    f'--vocab={given.parent / "vocab.txt"}', '--workers=2', '--part_mb=0.01', *more,
  ]  # fmt: skip


def start_prepare(given: pathlib.Path, output: pathlib.Path, *more: str) -> subprocess.Popen:
  """Starts `prepare`; what it says is in OUTPUT.said."""
  with open(f'{output}.said', 'a', encoding='utf-8') as said:
    command = prepare_command(given, output, *more)
    return subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said)


def prepare(given: pathlib.Path, output: pathlib.Path, *more) -> subprocess.CompletedProcess:
  command = prepare_command(given, output, *more)
  return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def seconds(work: Callable[[], object]) -> float:
  """How long something takes."""
  start = time.monotonic()
  work()
  return time.monotonic() - start


def same_files(expected: pathlib.Path, found: pathlib.Path) -> None:
  """Compares all files of two stores, but for plans."""
  plain = lambda path: {
    name: data for name, data in prepare_runs.contents(path).items() if 'plans/' not in name
  }
  one, two = plain(expected), plain(found)
  differing = sorted(name for name in {*one, *two} if one.get(name) != two.get(name))
  if differing:
    raise AssertionError(f'files of {found} differ from those of {expected}: {differing}')


def plan_store(path: pathlib.Path) -> pathlib.Path:
  """A store whose plans are small."""
  toy_store.on_disk(path)
  return path


def start_plan(store: pathlib.Path, length: int = 64, seconds: float = 0.0) -> subprocess.Popen:
  """A process that opens the plan of this length, and builds it if need be."""
  command = [sys.executable, '-c', PLAN, str(store), str(seconds), str(length)]
  with open(f'{store}.said', 'a', encoding='utf-8') as said:
    return subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said, env=dict(os.environ))


def until_building(store: pathlib.Path, process: subprocess.Popen) -> None:
  """Waits until a process has begun to build, after all that others have left."""
  end, name = time.monotonic() + 120, ''
  while not name:
    assert process.poll() is None and time.monotonic() < end, 'nothing is being built'
    lock = next((store / 'plans').glob('*.lock'), None)
    held = lock is not None and f'"pid": {process.pid},' in lock.read_text()
    name = held and next((store / 'plans').glob('.building-*/begun'), None)
    time.sleep(0.01)


def columns(examples) -> dict[str, np.ndarray]:
  named = dict(examples.column, row_start=examples.row_start, row_example=examples.row_example)
  return {name: np.array(value) for name, value in named.items()}


def right_plan(store: pathlib.Path, length: int = 64) -> pathlib.Path:
  """Compares the plan in the cache with one that is made in memory; returns where it is."""
  opened, recipe = open_store(store), toy_store.recipe(pack=8)
  found = examples_lib.make_examples(opened, recipe, length, 0)
  one = columns(found)
  two = columns(examples_lib.examples_in_memory(opened, recipe, length, 0))
  if one.keys() != two.keys() or any((one[k] != two[k]).any() for k in one):
    raise AssertionError(f'the plan {found.plan} is not what its store and recipe say')
  assert found.plan is not None and not cache.fault(found.plan)
  return found.plan
