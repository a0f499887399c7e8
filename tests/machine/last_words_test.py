"""What processes say that end within C code: a mapped file is gone, or the other processes are."""

import subprocess
import sys

import numpy as np
import pytest
from mutation import mutation

READER = """
import os, sys, threading
import numpy as np
from bertjax.machine import last_words
last_words.of_files()
x = np.load(sys.argv[1], mmap_mode='r')
other = np.load(sys.argv[2], mmap_mode='r')
os.truncate(sys.argv[1], int(sys.argv[3]))
reads = dict(copy=lambda: x[90_000:].copy(), one=lambda: x[-1].item(), add=lambda: x.sum())
thread = threading.Thread(target=reads[sys.argv[4]])
thread.start()
thread.join()
print('read')
"""


@pytest.mark.parametrize(
  'size, how', [('0', 'copy'), ('5000', 'copy'), ('700000', 'copy'), ('0', 'one'), ('0', 'add')]
)
@mutation('flags=_SIGINFO', 'flags=0')
@mutation('_ADDRESS = 16', '_ADDRESS = 8')
@mutation('os._exit(1)', 'os._exit(0)', file='bertjax/machine/last_words.py')
def test_a_file_that_becomes_shorter_is_named(tmp_path, size, how):
  for name in ('a b.npy', 'other.npy'):
    np.save(tmp_path / name, np.arange(100_000))
  command = [sys.executable, '-c', READER, tmp_path / 'a b.npy', tmp_path / 'other.npy', size, how]
  done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
  assert (done.returncode, done.stdout) == (1, ''), done.stderr
  assert done.stderr == (
    f'\nbertjax: {tmp_path}/a b.npy became shorter while it was read, or its disk fails. '
    'Put the file back; a run goes on from its last checkpoint\n'
  )


@mutation("'record.json').exists()", "'record.json').is_dir()")
def test_a_plan_that_becomes_shorter_is_removed(tmp_path):
  for name in ('rows.npy', 'other.npy'):
    np.save(tmp_path / name, np.arange(100_000))
  (tmp_path / 'record.json').touch()
  files = [tmp_path / 'rows.npy', tmp_path / 'other.npy']
  command = [sys.executable, '-c', READER, *files, '0', 'add']
  done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
  assert f'Remove {tmp_path}, which is made again; a run goes on' in done.stderr


ABORTED = """
import ctypes, faulthandler, sys, threading
from bertjax.machine import last_words
faulthandler.enable()
last_words.of_processes('the last words')
if sys.argv[1:]:
  threading.Thread(target=ctypes.CDLL(None).abort).start()
"""


@mutation('_say(signal.SIGABRT, lambda info: said)', 'pass')
def test_a_process_that_is_given_up_says_so_without_a_dump():
  for given, ended in ((['now'], (1, '\nbertjax: the last words\n')), ([], (0, ''))):
    command = [sys.executable, '-c', ABORTED, *given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == ended
