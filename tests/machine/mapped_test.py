"""A mapped file that ends under its reader, in processes of their own."""

import subprocess
import sys

import numpy as np
import pytest
from mutation import mutation

READER = """
import os, sys, threading
import numpy as np
from bertjax.machine import mapped
mapped.watch()
x = np.load(sys.argv[1], mmap_mode='r')
other = np.load(sys.argv[2], mmap_mode='r')
os.truncate(sys.argv[1], int(sys.argv[3]))
reads = dict(copy=lambda: x[90_000:].copy(), one=lambda: x[-1].item(), add=lambda: x.sum())
thread = threading.Thread(target=reads[sys.argv[4]])
thread.start()
thread.join()
print('read')
"""


@pytest.mark.parametrize('size', ['0', '5000', '700000'])
@pytest.mark.parametrize('how', ['copy', 'one', 'add'])
@mutation('flags=_SIGINFO', 'flags=0', file='bertjax/machine/mapped.py')
@mutation('_ADDRESS = 16', '_ADDRESS = 8', file='bertjax/machine/mapped.py')
@mutation('os._exit(1)', 'os._exit(0)', file='bertjax/machine/mapped.py')
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
