"""What a door shows: one line for a user's mistake and for Ctrl-C, a traceback for all else."""

import json
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from mutation import mutation

from bertjax import errors

ROOT = pathlib.Path(__file__).resolve().parents[1]


def at_door(body: str) -> subprocess.Popen:
  """A program whose door has this body."""
  code = f'from bertjax.errors import UserError, door\nwith door("prog"):\n  {body}\n'
  return subprocess.Popen(
    [sys.executable, '-c', code], cwd=ROOT, text=True, stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
  )  # fmt: skip


def test_a_mistake_of_the_user_is_one_line():
  process = at_door('raise UserError("expected a, got b: take a")')
  assert process.communicate()[1] == 'prog: expected a, got b: take a\n'
  assert process.returncode == 1


@pytest.mark.parametrize('error', ['ValueError("of ours")', 'OSError(28, "full", "a.txt")'])
@mutation(
  'errors: a mistake of ours is shown as one of the user',
  'bertjax/errors.py',
  '  except UserError as error:',
  '  except Exception as error:',
)
def test_a_mistake_of_ours_keeps_its_traceback(error):
  err = at_door(f'raise {error}').communicate()[1]
  assert err.startswith('Traceback') and error.split('(')[0] in err


def test_ctrl_c_is_one_line_and_waits_for_no_thread():
  wait = 'import threading, time; threading.Thread(target=time.sleep, args=(60,)).start()'
  process = at_door(f'{wait}; print("ready", flush=True); time.sleep(60)')
  assert process.stdout and process.stdout.readline() == 'ready\n'
  start = time.monotonic()
  process.send_signal(signal.SIGINT)
  _, err = process.communicate()
  assert (process.returncode, err) == (130, '\nprog: interrupted\n')
  assert time.monotonic() - start < 30


def test_an_error_while_writing_says_what_and_where():
  with pytest.raises(OSError, match="No space.*, while writing metrics: 'run/m.jsonl'") as caught:
    with errors.writing('metrics', pathlib.Path('run/m.jsonl')), open('/dev/full', 'wb', 0) as file:
      file.write(b'1')
  assert caught.value.errno == 28


def refused(work):
  try:
    work()
  except Exception as error:
    return error
  raise AssertionError('nothing was raised')


def test_an_error_is_foreign_where_a_package_raised_it():
  assert errors.is_foreign(refused(lambda: json.loads('{')))
  # A wrong argument is an error of the line that gives it, in Python and in C.
  assert not errors.is_foreign(refused(lambda: errors.choose('a', [1, 'b'], 'key')))
  assert not errors.is_foreign(refused(lambda: errors.nearest('a', 5)))


def test_a_file_that_the_error_names_is_kept(tmp_path):
  with pytest.raises(FileNotFoundError, match="while writing a copy: '.*none.txt'"):
    with errors.writing('a copy', tmp_path / 'copy'):
      (tmp_path / 'none.txt').read_bytes()
