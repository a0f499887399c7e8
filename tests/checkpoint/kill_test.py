"""Checkpoints under kill -9, and in several processes."""

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


@pytest.mark.full
def test_a_run_killed_in_saves_loses_nothing_that_was_complete(tmp_path):
  """Killed at random moments; each life must start from complete work."""
  directory = tmp_path / 'checkpoints'
  rng, complete, seen = random.Random(25), 0, 0
  for _ in range(25):
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


@pytest.mark.parametrize('elsewhere', [False, pytest.param(True, marks=pytest.mark.full)])
@mutation(
  '{n for n in first if first[n] == hosts.index()}',
  'first if hosts.index() == 0 else {}',
  case='True',
)
def test_processes_save_and_fall_back_together(tmp_path, monkeypatch, elsewhere):
  """On a disk that they share, or at a URL, with copies of their own."""
  place = f'file://{tmp_path}/run' if elsewhere else tmp_path / 'run'
  directory = tmp_path / 'run/checkpoints' if elsewhere else place
  other_hosts = lambda number: monkeypatch.setenv('BERTJAX_CACHE', f'{tmp_path}/cache {number}')
  other_hosts(0)
  for output in run_processes(place, 2, 3):
    assert output == ['restored 0', 'complete 3', 'closed 3']
  assert kept(directory) == [2, 3]
  flip(largest(directory / '3'))
  other_hosts(1)
  for output in run_processes(place, 2, 1):
    assert output == ['restored 2', 'complete 3', 'closed 3']
  other_hosts(2)
  with start_loop(place, 0) as loop:  # and one process reads what two wrote
    assert loop.stdout.readline() == 'restored 3\n'
