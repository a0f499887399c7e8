"""Locks: who holds one is named, and one that a killed process left blocks nobody."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from mutation import mutation

from bertjax.machine import locks

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Holds the lock argv[1] for argv[2] seconds; prints its pid, or that of a child it has forked.
HOLD = """
import os, pathlib, sys, time
from bertjax.machine import locks
with locks.alone(pathlib.Path(sys.argv[1]), 'taken'):
  child = os.fork() if 'fork' in sys.argv else os.getpid()
  if child:
    print(child, flush=True)
  time.sleep(float(sys.argv[2]))
  if not child:
    os._exit(0)
"""


def hold(path, seconds=60.0, *more):
  """A process that holds the lock, and the number it prints."""
  command = [sys.executable, '-c', HOLD, str(path), str(seconds), *more]
  process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
  with process.stdout as out:
    return process, int(out.readline())


@mutation('fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)', 'pass')
@mutation('path, _named(before))', 'path, _holding(before))')
def test_the_holder_is_named_and_a_killed_one_blocks_nobody(tmp_path, caplog):
  path = tmp_path / 'lock'
  holder, _ = hold(path)
  said = f'DIR is taken: process {holder.pid} on {socket.gethostname()}, since 20'
  with pytest.raises(ValueError, match=said), locks.alone(path, 'DIR is taken'):
    pass
  assert not locks.is_free(path)
  holder.kill()
  holder.wait()
  assert path.exists() and locks.is_free(path)
  with locks.alone(path, 'DIR is taken'):
    assert f'was left by process {holder.pid} on' in caplog.text and 'lives on' not in caplog.text
  assert not path.exists() and locks.is_free(path)


@mutation('if not _is(file, path):', 'if False:')
def test_of_many_that_want_it_one_at_a_time_has_it(tmp_path):
  """Each removes the file when it lets go, while others wait for it."""
  path, inside, most, turns = tmp_path / 'lock', [], [], 200
  monkey = pytest.MonkeyPatch()
  monkey.setattr(locks, 'POLL_S', 0.0)

  def work():
    for _ in range(turns):
      with locks.in_turn(path, lambda holder: None):
        inside.append(1)
        most.append(len(inside))
        time.sleep(0)
        inside.pop()

  threads = [threading.Thread(target=work) for _ in range(4)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  monkey.undo()
  assert len(most) == 4 * turns and max(most) == 1


def test_a_child_that_outlives_the_holder_is_hinted_at(tmp_path):
  """A descriptor that a fork copied keeps the lock."""
  parent, child = hold(tmp_path / 'lock', 60.0, 'fork')
  parent.kill()
  parent.wait()
  with (
    pytest.raises(ValueError, match='it has ended, but a process that it started lives on'),
    locks.alone(tmp_path / 'lock', 'taken'),
  ):
    pass
  os.kill(child, signal.SIGKILL)


def test_a_torn_lock_holds_all_the_same(tmp_path):
  path = tmp_path / 'lock'
  for text in ('', '{"pid"', '[]', '{}'):
    holder, _ = hold(path)
    path.write_text(text)
    with pytest.raises(ValueError, match='a process that did not say its name'):
      with locks.alone(path, 'taken'):
        pass
    holder.kill()
    holder.wait()
    with locks.alone(path, 'taken'):
      assert str(os.getpid()) in path.read_text()


def test_a_file_system_without_locks_is_said(tmp_path, monkeypatch, caplog):
  def none(*_):
    raise OSError(locks.errno.ENOTSUP, 'Operation not supported')

  monkeypatch.setattr(locks.fcntl, 'flock', none)
  with locks.in_turn(tmp_path / 'lock', print) as alone:
    assert not alone and 'this file system has no locks' in caplog.text
