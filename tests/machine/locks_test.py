"""Locks: who holds one is named, and one that a killed process left blocks nobody."""

import os
import socket
import subprocess
import sys
import threading
import time

import pytest
from mutation import mutation
from processes import ROOT

from bertjax.machine import locks

# Holds the lock argv[1]; says so in a line.
HOLD = """
import pathlib, sys, time
from bertjax.machine import locks
with locks.alone(pathlib.Path(sys.argv[1]), 'taken'):
  print('held', flush=True)
  time.sleep(60)
"""


def hold(path):
  """A process that holds the lock."""
  command = [sys.executable, '-c', HOLD, str(path)]
  process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
  with process.stdout as out:
    assert out.readline() == 'held\n'
  return process


@mutation('fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)', 'pass')
def test_the_holder_is_named_and_a_killed_one_blocks_nobody(tmp_path, caplog):
  path = tmp_path / 'lock'
  holder = hold(path)
  said = f'DIR is taken: process {holder.pid} on {socket.gethostname()}, since 20'
  with pytest.raises(ValueError, match=said), locks.alone(path, 'DIR is taken'):
    pass
  assert not locks.is_free(path)
  holder.kill()
  holder.wait()
  assert path.exists() and locks.is_free(path)
  with locks.alone(path, 'DIR is taken'):
    assert f'was left by process {holder.pid} on' in caplog.text
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


def test_a_torn_lock_holds_all_the_same(tmp_path):
  path = tmp_path / 'lock'
  for text in ('{"pid"', '[]', '{}'):
    holder = hold(path)
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
