"""launch/local.sh with real runs: two processes of four simulated devices each."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from mutation import mutation
from processes import ROOT, command, environment, finish, lines, steps_logged, wait_for

NAME = """a b'c"d;e $(touch pwned)"""  # what a shell would take apart


def launch(store, workdir, *more, size: str = '2x4') -> subprocess.Popen:
  """Starts a run by the script; its processes end with it."""
  flags = command(store, workdir, *more)[3:]
  environ = dict(environment(), PYTHON=sys.executable)
  del environ['XLA_FLAGS']
  with open(f'{workdir}.log', 'a', encoding='utf-8') as log:
    return subprocess.Popen(
      ['launch/local.sh', size, *flags], cwd=ROOT, env=environ, stdout=log, stderr=log
    )


def children(process: subprocess.Popen) -> list[int]:
  path = pathlib.Path(f'/proc/{process.pid}/task/{process.pid}/children')
  return [int(pid) for pid in path.read_text().split()]


def gone(pids) -> bool:
  return not any(pathlib.Path(f'/proc/{pid}').exists() for pid in pids)


def losses(workdir) -> np.ndarray:
  return np.array([line['loss'] for line in lines(workdir) if 'loss' in line])


@pytest.fixture(scope='module')
def straight(rich_store, tmp_path_factory) -> np.ndarray:
  """The losses of one process with all eight devices."""
  workdir = tmp_path_factory.mktemp('straight')
  finish(rich_store, workdir, devices=8)
  return losses(workdir)


@pytest.mark.full
@mutation('    own[DEVICES] = int(devices)\n', '    pass\n')
def test_a_run_that_is_stopped_resumes_in_one_process(rich_store, straight, tmp_path):
  workdir = tmp_path / NAME
  launcher = launch(rich_store, workdir)
  wait_for(lambda: steps_logged(workdir) >= 8, launcher)
  pids = children(launcher)
  assert len(pids) == 2
  launcher.send_signal(signal.SIGTERM)
  assert launcher.wait(120) == 0 and gone(pids)
  said = pathlib.Path(f'{workdir}.log').read_text()
  assert 'Process 0 of 2' in said and 'Stopped by SIGTERM after step' in said
  assert "Mesh {'data': 8," in said, said
  assert pathlib.Path(f'{workdir}.process-1.log').exists()
  stopped = steps_logged(workdir)
  assert stopped < 40 and (workdir / 'checkpoints' / str(stopped)).exists()
  said = finish(rich_store, workdir)  # one process, one device
  assert f'Resuming after step {stopped}' in said
  np.testing.assert_allclose(losses(workdir), straight, rtol=2e-5)
  assert not list(ROOT.glob('pwned')) and not list(tmp_path.rglob('pwned'))


@pytest.mark.full
@mutation('_say(signal.SIGABRT, lambda info: said)', 'pass')
def test_a_process_that_stood_still_for_long_says_so(rich_store, tmp_path):
  """gRPC drops who leaves a ping unanswered for 60 s, and pings who has just spoken, as at a save;
  jax ends a process that was dropped."""
  workdir = tmp_path / 'run'
  launcher = launch(rich_store, workdir, '--config.total_steps=20000', size='2x2')
  wait_for(lambda: (workdir / 'checkpoints' / '6').exists(), launcher)
  pids = children(launcher)
  os.kill(pids[1], signal.SIGSTOP)
  time.sleep(80)
  assert launcher.poll() is None  # the other one waits
  os.kill(pids[1], signal.SIGCONT)
  assert launcher.wait(120) != 0 and gone(pids)
  logs = [f'{workdir}.log', f'{workdir}.process-1.log']
  first, second = [pathlib.Path(log).read_text() for log in logs]
  assert 'a process has ended or stood still for a minute or more' in second
  assert 'and so the others were stopped' in first
  assert 'Fatal Python error' not in first + second and 'Traceback' not in first + second
