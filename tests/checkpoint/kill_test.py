"""Checkpoints under kill -9, in several processes, and on a full disk."""

import os
import pathlib
import random
import subprocess
import sys
import time

import processes
import pytest
from checkpoint_cases import flip, kept, largest
from mutation import mutation

LOOP = pathlib.Path(__file__).parents[1] / 'support' / 'save_loop.py'


def start_loop(directory, steps, *distributed):
  environment = dict(os.environ, JAX_PLATFORMS='cpu', XLA_FLAGS='', PYTHONWARNINGS='ignore')
  return subprocess.Popen(
    [sys.executable, LOOP, directory, str(steps), *map(str, distributed)],
    stdout=subprocess.PIPE,
    text=True,
    env=environment,
  )


@pytest.mark.parametrize('kills', [2, pytest.param(25, marks=pytest.mark.full)])
def test_a_run_killed_in_saves_loses_nothing_that_was_complete(tmp_path, kills):
  """Killed at random moments; each life must start from complete work."""
  directory = tmp_path / 'checkpoints'
  rng, complete, seen = random.Random(kills), 0, 0
  for _ in range(kills):
    with start_loop(directory, 100_000) as loop:
      word, restored = loop.stdout.readline().split()
      assert word == 'restored' and complete <= int(restored)
      done = [int(loop.stdout.readline().split()[1]) for _ in range(rng.randrange(3))]
      time.sleep(rng.uniform(0.0, 0.6))
      loop.kill()
      done += [int(line.split()[1]) for line in loop.stdout if line.endswith('\n')]
    seen += len(done)
    complete = max([int(restored), *done])
  assert seen
  with start_loop(directory, 1) as loop:
    output = loop.stdout.read().split()
  assert loop.returncode == 0 and int(output[1]) >= complete


def run_processes(directory, count, steps):
  """Runs the loop on `count` processes together; returns what each printed."""
  port = processes.free_port()
  loops = [start_loop(directory, steps, port, count, i) for i in range(count)]
  outputs = [loop.communicate(timeout=120)[0].splitlines() for loop in loops]
  assert [loop.returncode for loop in loops] == [0] * count
  own = ('restored', 'complete', 'closed')  # Gloo talks on stdout, too
  return [[line for line in lines if line.startswith(own)] for lines in outputs]


def test_processes_save_and_fall_back_together(tmp_path):
  directory = tmp_path / 'checkpoints'
  for output in run_processes(directory, 2, 3):
    assert output == ['restored 0', 'complete 3', 'closed 3']
  assert kept(directory) == [2, 3]
  flip(largest(directory / '3'))
  for output in run_processes(directory, 2, 1):
    assert output == ['restored 2', 'complete 3', 'closed 3']
  with start_loop(directory, 0) as loop:  # and one process reads what two wrote
    assert loop.stdout.readline() == 'restored 3\n'


@pytest.mark.full
@mutation('{n for n in first if first[n] == hosts.index()}', 'first if hosts.index() == 0 else {}')
def test_processes_without_a_common_disk_save_together_elsewhere(tmp_path, monkeypatch):
  url = f'file://{tmp_path}/elsewhere'
  caches = iter(str(tmp_path / f'cache {number}') for number in range(4))
  monkeypatch.setenv('BERTJAX_CACHE', next(caches))
  for output in run_processes(url, 2, 3):
    assert output == ['restored 0', 'complete 3', 'closed 3']
  assert kept(tmp_path / 'elsewhere/checkpoints') == [2, 3]
  flip(largest(tmp_path / 'elsewhere/checkpoints/3'))
  monkeypatch.setenv('BERTJAX_CACHE', next(caches))  # the next run is on other hosts
  for output in run_processes(url, 2, 1):
    assert output == ['restored 2', 'complete 3', 'closed 3']
  monkeypatch.setenv('BERTJAX_CACHE', next(caches))
  with start_loop(url, 0) as loop:  # and one process reads what two wrote
    assert loop.stdout.readline() == 'restored 3\n'
