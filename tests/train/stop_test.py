"""How runs end before their last step: signals, in one process and in two, at any moment."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import systems
from mutation import mutation
from processes import ROOT, environment, finish, lines, start, start_pair, steps_logged, wait_for

from bertjax.machine import locks
from bertjax.machine.stop import ONE_S
from bertjax.train import loop
from bertjax.train import phase as phase_lib


def said(workdir, process: int | None = None) -> str:
  name = f'{workdir}.log' if process is None else f'{workdir}.{process}.log'
  return pathlib.Path(name).read_text(encoding='utf-8')


@pytest.fixture(scope='module')
def straight(rich_store, tmp_path_factory):
  """The uninterrupted run."""
  workdir = tmp_path_factory.mktemp('straight')
  finish(rich_store, workdir)
  return workdir


@mutation('config.checkpoint_steps == 0 or last or leaving', 'config.checkpoint_steps == 0 or last')
def test_a_signal_saves_and_ends_cleanly(rich_store, tmp_path):
  workdir = tmp_path / 'run'
  process = start(rich_store, workdir)
  wait_for(lambda: steps_logged(workdir) >= 8, process)
  process.send_signal(signal.SIGTERM)
  assert process.wait(120) == 0
  stopped = steps_logged(workdir)
  assert f'Stopped by SIGTERM after step {stopped}' in said(workdir) and stopped < 40
  assert (workdir / 'checkpoints' / str(stopped)).exists()


@mutation('elif time.monotonic() - first > ONE_S:', 'elif time.monotonic() - first > 1e9:')
def test_a_second_signal_stops_at_once():
  """In a step that does not come to its end; the first two are one, told twice."""
  code = (
    'import time; from bertjax.machine.stop import Stop\n'
    'with Stop(print) as stop:\n'
    "  stop.at(0); print('ready', flush=True)\n"
    '  while not stop.at(1): time.sleep(.01)\n'
    "  print('asked', flush=True); time.sleep(60)\n"
  )
  process = subprocess.Popen(
    [sys.executable, '-c', code], cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True
  )
  assert process.stdout.readline() == 'ready\n'
  process.send_signal(signal.SIGTERM)
  process.send_signal(signal.SIGTERM)
  assert process.stdout.readline() == 'asked\n'
  time.sleep(ONE_S + 0.2)
  assert process.poll() is None
  process.send_signal(signal.SIGTERM)
  told, _ = process.communicate(timeout=60)
  assert process.returncode == 128 + signal.SIGTERM
  assert told == 'SIGTERM came twice: stopped at once\n'


def test_children_die_with_their_parent(tmp_path):
  """kill -9 of the run, while `prepare` works for it."""
  text = tmp_path / 'text.txt'
  text.write_text('a line of words that goes on for a while\n' * 400_000)
  workdir = tmp_path / 'run'
  process = start(
    '', workdir, f'--config.data.input={text}', '--config.data.train_vocab.type=wordpiece',
    '--config.data.train_vocab.size=300',
  )  # fmt: skip
  mine = lambda: [
    int(p.name)
    for p in pathlib.Path('/proc').glob('[0-9]*')
    if str(text).encode() in read(p / 'cmdline') and int(p.name) != process.pid
  ]
  wait_for(mine, process)
  process.kill()
  process.wait()
  end = time.monotonic() + 20
  while mine() and time.monotonic() < end:
    time.sleep(0.05)
  assert not mine()


def read(path: pathlib.Path) -> bytes:
  try:
    return path.read_bytes()
  except OSError:
    return b''  # the process has ended


@pytest.mark.full
@mutation('    if jax.process_count() == 1:\n', '    if True:\n')
@mutation(
  'return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])',
  'return jax.device_put(array, sharding)',
)
def test_two_processes_begin_with_the_model_of_a_run(rich_store, straight, tmp_path):
  given = (f'--config.init_from={straight}', '--config.total_steps=10')
  finish(rich_store, tmp_path / 'one', *given, devices=4)
  both = start_pair(rich_store, tmp_path / 'two', *given)
  assert [p.wait(200) for p in both] == [0, 0], said(tmp_path / 'two', 1)
  one, two = ([x['loss'] for x in lines(tmp_path / n) if 'loss' in x] for n in ('one', 'two'))
  np.testing.assert_allclose(two, one, rtol=1e-5)


@pytest.mark.full
@mutation("if error := not alone and hosts.told('stop/failed'):", 'if error := None:')
def test_an_error_of_one_process_ends_the_other_soon(rich_store, tmp_path):
  """Process 0 alone meets the lock of another run; process 1 waits for it then."""
  workdir = tmp_path / 'run'
  workdir.mkdir()
  with locks.alone(workdir / 'lock', 'the test is at work'):
    both = start_pair(rich_store, workdir)
    assert all(p.wait(100) != 0 for p in both)  # where nothing is told, jax lets go after 300 s
  assert 'another run is at work' in said(workdir, 0) and 'Traceback' not in said(workdir, 0)
  assert 'Left after the error that ended process 0: another run' in said(workdir, 1)


@pytest.mark.full
@mutation("      hosts.barrier(f'compiled/{name}/{lengths}', math.inf)\n", '')
def test_a_process_that_compiles_longer_is_waited_for(rich_store, tmp_path):
  workdir = tmp_path / 'run'
  both = start_pair(rich_store, workdir, '--config.total_steps=5')
  wait_for(lambda: os.path.exists(f'{workdir}.0.log') and 'Compiling' in said(workdir, 0), *both)
  both[1].send_signal(signal.SIGSTOP)
  time.sleep(45)
  both[1].send_signal(signal.SIGCONT)
  assert [p.wait(200) for p in both] == [0, 0]
  assert steps_logged(workdir) == 5


@mutation('    stack.push(self._rescue)\n', '')
@pytest.mark.full
def test_an_error_costs_no_step(rich_store, tmp_path, monkeypatch):
  """It is raised where the batch of step 9 is asked for; checkpoints are due every 6 steps."""
  config = systems.tiny('bert', total_steps=40, checkpoint_steps=6, eval_steps=100, log_steps=1)
  config.data.store, config.phases = str(rich_store), {}
  batch_of = phase_lib.Phase.next_batch

  def broken(self, index):
    if index == 8:
      raise MemoryError('no room for a batch')
    return batch_of(self, index)

  monkeypatch.setattr(phase_lib.Phase, 'next_batch', broken)
  with pytest.raises(MemoryError):
    loop.run(config, str(tmp_path))
  assert (tmp_path / 'checkpoints' / '8' / 'manifest.json').exists()
