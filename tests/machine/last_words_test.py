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


def ended(code, *arguments):
  """(exit status, what is printed, what is said) of a program of Python."""
  command = [sys.executable, '-c', code, *arguments]
  done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
  return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize('size, how', [('5000', 'copy'), ('0', 'one'), ('0', 'add')])
@mutation('flags=_SIGINFO', 'flags=0')
@mutation('_ADDRESS = 16', '_ADDRESS = 8')
@mutation('os._exit(1)', 'os._exit(0)', file='bertjax/machine/last_words.py')
def test_a_file_that_becomes_shorter_is_named(tmp_path, size, how):
  for name in ('a b.npy', 'other.npy'):
    np.save(tmp_path / name, np.arange(100_000))
  assert ended(READER, tmp_path / 'a b.npy', tmp_path / 'other.npy', size, how) == (
    1, '', f'\nbertjax: {tmp_path}/a b.npy became shorter while it was read, or its disk fails. '
    'Put the file back; a run goes on from its last checkpoint\n',
  )  # fmt: skip


@mutation("'record.json').exists()", "'record.json').is_dir()")
def test_a_plan_that_becomes_shorter_is_removed(tmp_path):
  for name in ('rows.npy', 'other.npy'):
    np.save(tmp_path / name, np.arange(100_000))
  (tmp_path / 'record.json').touch()
  *_, said = ended(READER, tmp_path / 'rows.npy', tmp_path / 'other.npy', '0', 'add')
  assert f'Remove {tmp_path}, which is made again; a run goes on' in said


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
  assert ended(ABORTED, 'now') == (1, '', '\nbertjax: the last words\n')
  assert ended(ABORTED) == (0, '', '')
