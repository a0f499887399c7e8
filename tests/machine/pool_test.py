"""Functions in processes of their own: when they end, and who hears Ctrl-C."""

import os
import signal
import subprocess
import sys
import time

import pytest
from mutation import mutation
from processes import ROOT, environment

CALLS = """
from bertjax.errors import door
with door('prog'):
  from bertjax.machine import pool
  print('begun', flush=True)
  pool.apart(exec, "import os, time; os.write(1, b'begun\\\\n'); time.sleep(60)")
"""


def started(lines: int) -> subprocess.Popen:
  """A process that has a function called in another one, once both have said so many lines."""
  pipe = subprocess.PIPE
  process = subprocess.Popen(
    [sys.executable, '-c', CALLS], cwd=ROOT, env=environment(), start_new_session=True,
    stdout=pipe, stderr=pipe,
  )  # fmt: skip
  assert [process.stdout.readline() for _ in range(lines)] == [b'begun\n'] * lines
  return process


@mutation('  children.follow(parent.sentinel)\n', '')
def test_a_function_apart_ends_with_a_parent_that_is_killed():
  process = started(2)
  process.kill()
  process.communicate(timeout=20)  # to the end of its output, which the function has too


@pytest.mark.parametrize('lines', [1, 2])
@mutation('(signal.SIG_BLOCK, [signal.SIGINT])', '(signal.SIG_BLOCK, [])', case='1')
@mutation('wait=kind is not KeyboardInterrupt', 'wait=True', case='2')
def test_ctrl_c_ends_both_in_one_line(lines):
  """It comes to all processes of a terminal; the other one imports for a while."""
  process = started(lines)
  time.sleep(0.1)
  os.killpg(process.pid, signal.SIGINT)
  assert process.communicate(timeout=20)[1] == b'\nprog: interrupted\n'


HEARS = """
import os, signal, threading, time
from bertjax.machine import pool
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
heard = []
signal.signal(signal.SIGINT, lambda *given: heard.append(given[0]))
with pool._unheard():
  os.kill(os.getpid(), signal.SIGINT)
  time.sleep(0.1)
  print(len(heard))
time.sleep(0.1)
print(len(heard))
"""


@mutation('is threading.main_thread() and callable(handler)', 'is None')
def test_a_ctrl_c_waits_until_workers_are_started():
  done = subprocess.run([sys.executable, '-c', HEARS], cwd=ROOT, capture_output=True, text=True)
  assert done.stdout == '0\n1\n', done.stderr
