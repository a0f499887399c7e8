"""Several commands as one: signals, failures, and no orphans, even of a launcher that is killed."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from mutation import mutation
from processes import ROOT, wait_for

# Writes its process id, then a line for each signal, and ends after `last` of them.
CHILD = """
import os, pathlib, signal, sys, time
path, last = pathlib.Path(sys.argv[1]), int(sys.argv[2])
got = []
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
  signal.signal(number, lambda number, frame: got.append(signal.Signals(number).name))
def write():  # whole: the test reads it meanwhile
  path.with_suffix('.part').write_text(' '.join(got))
  path.with_suffix('.part').replace(path.with_suffix('.signals'))
path.write_text(f'{os.getpid()}\\n')
while len(got) < last:
  time.sleep(0.02)
  write()
write()  # one may have come while it was written
"""
LAUNCHER = """
import pathlib, sys
from bertjax.launch import processes
processes.GRACE_S = 1.0
folder, kinds = pathlib.Path(sys.argv[1]), sys.argv[2:]
commands = []
for i, kind in enumerate(kinds):
  words = (['-c', (folder / 'child.py').read_text(), str(folder / f'{i}.pid'), kind]
           if kind.isdecimal() else ['-c', kind])
  log = folder / f'{i}.log' if i else None
  commands.append(processes.Command([sys.executable, *words], {'MINE': kind}, log, f'process {i}'))
asked = []
status = processes.run_together(commands, asked)
print(status, asked, flush=True)
sys.exit(status)
"""


@pytest.fixture
def start(tmp_path):
  """A function that starts a launcher of children; they are gone after the test."""
  (tmp_path / 'child.py').write_text(CHILD)
  started = []

  def begin(*kinds) -> subprocess.Popen:
    process = subprocess.Popen(
      [sys.executable, '-c', LAUNCHER, str(tmp_path), *kinds], cwd=ROOT, text=True,
      stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    started.append(process)
    return process

  yield begin
  for process in started:
    process.kill()
  for path in tmp_path.glob('*.pid'):  # orphans hold the pipes, so nothing would end
    with contextlib.suppress(ProcessLookupError):
      os.kill(int(path.read_text()), signal.SIGKILL)
  for process in started:
    process.communicate()


def pids(folder, count: int) -> list[int]:
  """Those of the children, once all have begun."""
  found = lambda: [path.read_text() for path in sorted(folder.glob('*.pid'))]
  wait_for(lambda: len(found()) == count and all(text.endswith('\n') for text in found()))
  return [int(text) for text in found()]


def wait_until_gone(process_ids, seconds: float = 10) -> None:
  paths = [pathlib.Path(f'/proc/{pid}') for pid in process_ids]
  wait_for(lambda: not any(path.exists() for path in paths), seconds=seconds)


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGHUP])
@mutation('signal.SIGINT, signal.SIGHUP', 'signal.SIGHUP', file='bertjax/launch/processes.py')
def test_a_signal_reaches_every_process_once(start, tmp_path, number):
  launcher = start('1', '1')
  children = pids(tmp_path, 2)
  launcher.send_signal(number)
  assert launcher.wait(20) == 0
  wait_until_gone(children, 0.1)
  for path in tmp_path.glob('*.signals'):
    assert path.read_text() == number.name


@mutation('      start_new_session=True,\n', '')
def test_a_signal_to_the_whole_group_is_passed_on_once(start, tmp_path):
  launcher = start('1', '1')
  for child in pids(tmp_path, 2):
    assert os.getpgid(child) not in (os.getpgid(launcher.pid), os.getpgid(0))


def test_a_second_signal_is_passed_on_and_a_third_one_kills(start, tmp_path):
  launcher = start('9', '9')
  children = pids(tmp_path, 2)
  told = lambda: [path.read_text().split() for path in tmp_path.glob('*.signals')]
  for count in (1, 2):
    launcher.send_signal(signal.SIGTERM)
    wait_for(lambda count=count: told() == [['SIGTERM'] * count] * 2, seconds=10)
  launcher.send_signal(signal.SIGTERM)
  assert launcher.wait(20) == 128 + signal.SIGKILL
  wait_until_gone(children, 0.1)


@mutation('came = [] if asked is None else asked', 'came = []')
def test_a_signal_that_comes_as_a_command_ends_is_known(start):
  """The command has ended well, so its status does not say it; a grid of runs would go on."""
  ends = 'import os, signal; signal.signal(15, signal.SIG_IGN); os.kill(os.getppid(), 15)'
  process = start(ends)
  assert process.communicate(timeout=60)[0].split() == ['0', '[15]']


@mutation('ctypes.CDLL(None).prctl(1, 9)', 'ctypes.CDLL(None)')
def test_processes_die_with_a_launcher_that_is_killed(start, tmp_path):
  launcher = start('9', '9', '9')
  children = pids(tmp_path, 3)
  launcher.kill()
  wait_until_gone(children)


@mutation('      _send(running, signal.SIGTERM)\n', '')
@mutation('shown.log.read_bytes()[shown.older :][-_TAIL:]', 'b""')
@mutation('[shown.older :]', '')
@mutation("'' if status > 128 else", "'' if status else")
def test_one_that_fails_ends_all_and_is_shown(start, tmp_path):
  others = [str(tmp_path / f'{i}.pid') for i in (0, 2)]
  fails = (
    f'import os, time\nwhile not all(map(os.path.exists, {others})): time.sleep(0.02)\n'
    "print('what went wrong'); raise SystemExit(7)"
  )
  (tmp_path / '1.log').write_text('an older attempt\n')
  launcher = start('1', fails, '99')
  out, err = launcher.communicate(timeout=30)
  assert launcher.returncode == 7
  assert 'process 1 failed: 7; the end of its output' in err and 'what went wrong' in err
  assert 'an older attempt' not in err and 'an older attempt' in (tmp_path / '1.log').read_text()
  last = err.splitlines()[-1]  # behind what the others say on their way out
  assert last.startswith('bertjax.launch: process 1 failed: 7, and so the others were stopped')
  assert last.endswith(
    'by the same command, once that is mended, a run goes on from its last checkpoint'
  )
  assert (tmp_path / '0.signals').read_text() == 'SIGTERM'


@mutation("'' if status > 128 else", "'' if False else")
def test_one_that_is_killed_needs_no_mending(start):
  launcher = start('1', 'import os; os.kill(os.getpid(), 9)')
  err = launcher.communicate(timeout=30)[1]
  assert 'was ended by SIGKILL' in err
  assert (
    'stopped; by the same command a run goes on from its last checkpoint' in err.splitlines()[-1]
  )


@mutation('if not (asked and status == UNFINISHED):', 'if True:')
def test_what_stops_to_go_on_another_time_has_not_failed(start, tmp_path):
  stops = (
    'import pathlib, os, signal, time\n'
    'signal.signal(signal.SIGINT, lambda *_: os._exit(75))\n'
    f'pathlib.Path({str(tmp_path / "0.pid")!r}).write_text(f"{{os.getpid()}}\\n")\n'
    'time.sleep(60)'
  )
  launcher = start(stops)
  pids(tmp_path, 1)
  launcher.send_signal(signal.SIGINT)
  assert launcher.communicate(timeout=30)[1] == '' and launcher.returncode == 75


@mutation('if signal.getsignal(n) is not signal.SIG_IGN]', ']', file='bertjax/launch/processes.py')
def test_a_signal_that_is_ignored_is_not_passed_on(start, tmp_path):
  before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup starts a command
  try:
    launcher = start('1')
  finally:
    signal.signal(signal.SIGHUP, before)
  pids(tmp_path, 1)
  launcher.send_signal(signal.SIGHUP)
  time.sleep(0.5)
  assert launcher.poll() is None and (tmp_path / '0.signals').read_text() == ''
  launcher.send_signal(signal.SIGTERM)
  assert launcher.wait(20) == 0 and (tmp_path / '0.signals').read_text() == 'SIGTERM'
