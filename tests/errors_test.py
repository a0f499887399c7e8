"""What a door shows: one line for a user's mistake and for Ctrl-C, a traceback for all else."""

import contextlib
import errno
import logging
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np
import processes
import pytest
from mutation import mutation
from no_room import no_room
from processes import ROOT

from bertjax import errors
from bertjax.machine import durable
from bertjax.metrics import curves
from bertjax.use import vectors


def at_door(body: str, before: str = 'default_int_handler') -> subprocess.Popen:
  """A program whose door has this body; Ctrl-C is handled so before it."""
  code = (
    f'import signal, sys, time\nsignal.signal(signal.SIGINT, signal.{before})\n'
    f'from bertjax.errors import UserError, door\nwith door("prog"):\n  {body}\n'
  )
  return subprocess.Popen(
    [sys.executable, '-c', code], cwd=ROOT, text=True, stdin=subprocess.PIPE,
    stdout=subprocess.PIPE, stderr=subprocess.PIPE,
  )  # fmt: skip


def after_ctrl_c(process: subprocess.Popen) -> tuple[int, str]:
  """How a program ends, and what it says, that gets Ctrl-C when it has said that it is ready."""
  assert process.stdout and process.stdout.readline() == 'ready\n'
  process.send_signal(signal.SIGINT)
  _, said = process.communicate()
  return process.returncode, said


def test_a_mistake_of_the_user_is_one_line():
  process = at_door('raise UserError("expected a, got b: take a")')
  assert process.communicate()[1] == 'prog: expected a, got b: take a\n'
  assert process.returncode == 1


@pytest.mark.parametrize('name', ['ENOSPC', 'EACCES'])  # of any path, and of one that is named
@mutation('if remedy is None or', 'if True or', case='ENOSPC')
def test_a_path_that_the_system_refuses_is_one_line(name):
  number = getattr(errno, name)
  err = at_door(f'raise OSError({number}, "so it is", "a.txt")').communicate()[1]
  assert err.startswith('prog: a.txt: so it is: ') and len(err.splitlines()) == 1


@mutation('things[:-1] if number == 1', 'things[:-1] if number == 2')
@mutation("else f'{number:,}'", "else f'{number}'")
def test_one_of_a_thing_is_no_plural():
  said = [errors.amount(number, 'texts') for number in (0, 1, 1.0, 1 / 3, 1234567)]
  assert said == ['0 texts', '1 text', '1 text', '0.333333 texts', '1,234,567 texts']


def to_json(path):
  durable.write_json(path, dict(a=1))


def to_a_directory(path):
  with durable.directory(path) as partial:
    (partial / 'file').write_text('text')


def to_vectors(path):
  with vectors.Writer(path, 2, False) as writer:
    writer.add(['a'], np.zeros((1, 2)), None)


def to_a_picture(path):
  path.with_name('metrics.jsonl').write_text('{"step": 1, "loss": 2.0}\n')
  with no_room():
    curves.plot([path.parent], path)


@pytest.mark.parametrize(
  'write, name',
  [(to_json, 'a.json'), (to_a_directory, 'run'), (to_vectors, 'v.npy'), (to_a_picture, 'a.png')],
)
@mutation(
  "  with writing('', path):",
  '  if True:',
  case='to_json-a.json',
  file='bertjax/machine/durable.py',
)
@mutation(
  "    with writing('', partial):",
  '    if True:',
  case='to_a_directory-run',
  file='bertjax/machine/durable.py',
)
@mutation("with writing('the curves', output):", 'if True:', case='to_a_picture-a.png')
@mutation(
  '      stack.callback(self._partial.unlink, missing_ok=True)\n', '', case='to_vectors-v.npy'
)
def test_a_disk_that_is_full_names_what_it_has_no_room_for(tmp_path, write, name):
  room = contextlib.nullcontext() if write is to_a_picture else no_room()
  with pytest.raises(OSError) as caught, room:
    write(tmp_path / name)
  assert str(tmp_path / name) in str(caught.value.filename)
  assert not list(tmp_path.glob('*.partial'))


@mutation("if str(raised.exc_value) != 'Event loop is closed':", 'if True:')
def test_what_a_failed_save_leaves_behind_is_not_shown_beside_it():
  code = """class Closed:
    def __del__(self): raise RuntimeError("Event loop is closed")
  Closed()"""
  assert at_door(code).communicate()[1] == ''


@mutation("startswith('RESOURCE_EXHAUSTED: Out of memory')", "startswith('EXHAUSTED')")
@mutation('except (MemoryError, RuntimeError)', 'except RuntimeError')
@pytest.mark.parametrize(
  'made, begin',
  [
    ('jax; jax.numpy.zeros(1 << 46).block_until_ready()', 'RESOURCE_EXHAUSTED: Out of memory'),
    ('numpy; numpy.zeros(1 << 46)', 'Unable to allocate'),
    ('sys; b" " * (1 << 50)', 'Out of memory'),
  ],
)
def test_a_memory_that_is_full_is_one_line_with_remedies(made, begin):
  process = at_door(f'import {made}')
  said = process.communicate()[1]
  assert said.startswith(f'prog: {begin}') and '\n' not in said[:-1]
  assert '--config.microbatches=2' in said and 'bertjax.preflight' in said
  assert process.returncode == 1


@mutation("full or 'Gloo' in str(error) or", 'full or')
def test_another_process_that_is_gone_is_one_line():
  said = 'UNKNOWN: Gloo all-reduce failed: [pair.cc:538] Connection reset by peer'
  err = at_door(f'raise RuntimeError("{said}")').communicate()[1]
  assert err.startswith(f'prog: {said}. Another process of the run has ended') and 'see its' in err
  assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
  'error',
  [
    'ValueError("of ours")',
    'OSError(9, "closed", "a.txt")',
    'RuntimeError("RESOURCE_EXHAUSTED: Shared memory")',
    "PermissionError(13, 'no')",
  ],
)
@mutation('  except (OSError, UserError) as error:', '  except Exception as error:')
def test_a_mistake_of_ours_keeps_its_traceback(error):
  err = at_door(f'raise {error}').communicate()[1]
  assert err.startswith('Traceback') and error.split('(')[0] in err


def interrupted(command, after: float) -> tuple[int, str]:
  """How a command ends, and what it says, that gets Ctrl-C some seconds after our first line."""
  process = subprocess.Popen(
    [sys.executable, '-X', 'importtime', *command], cwd=ROOT, env=processes.environment(),
    text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
  )  # fmt: skip
  with process:
    assert process.stderr
    for line in process.stderr:  # a line says that a module has been imported
      if line.rpartition('|')[2].strip() == 'bertjax':
        break
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    said = [line for line in process.stderr if not line.startswith('import time:')]
  return process.returncode, ''.join(said)


@pytest.mark.parametrize('after', [0.0, 0.2, 1.0])
@mutation('if _COMMAND and', 'if False and', case='0.0')
def test_ctrl_c_at_any_moment_shows_no_traceback(rich_store, tmp_path, after):
  endless = processes.command(rich_store, tmp_path / 'run', '--config.total_steps=1000000')[1:]
  status, said = interrupted(endless, after)
  assert 'Traceback' not in said, said
  assert status in (-signal.SIGINT, 130, 0), (status, said)  # before the door, within, of a run
  assert status != 130 or said.endswith('\nbertjax: interrupted\n'), said


@mutation(" and _module().partition('.')[0] == 'bertjax'", '')
def test_a_program_whose_package_imports_ours_keeps_its_ctrl_c(tmp_path):
  (tmp_path / 'theirs').mkdir()
  (tmp_path / 'theirs' / '__init__.py').write_text('import bertjax')
  said = 'import signal, sys; print(signal.getsignal(signal.SIGINT), sys.excepthook)'
  (tmp_path / 'theirs' / 'app.py').write_text(said)
  path = os.pathsep.join((str(tmp_path), str(ROOT)))
  command = [sys.executable, '-Xutf8', '-m', 'theirs.app', '-m', 'bertjax.x']
  env = dict(os.environ, PYTHONPATH=path)
  done = subprocess.run(command, env=env, text=True, capture_output=True, check=True)
  assert 'default_int_handler' in done.stdout and 'built-in function excepthook' in done.stdout


@mutation('signal.signal(signal.SIGINT, functools.partial(_interrupt, program))', 'pass')
def test_ctrl_c_is_the_doors_as_soon_as_it_is_open():
  """Before it a command leaves it to the system, which says nothing."""
  process = at_door('print("ready", flush=True); time.sleep(60)', before='SIG_DFL')
  assert after_ctrl_c(process) == (130, '\nprog: interrupted\n')


@mutation("if frame.f_code.co_filename.startswith('<frozen importlib'):", 'if False:')
def test_an_import_makes_nothing_else_of_ctrl_c(tmp_path):
  """As extensions in C do, numpy and jaxlib among them."""
  wait = 'try:\n  print("ready", flush=True); time.sleep(60)\nexcept KeyboardInterrupt:\n  '
  (tmp_path / 'slow.py').write_text(f'import time\n{wait}raise ImportError("in C")\n')
  process = at_door(f'import sys; sys.path.append({str(tmp_path)!r}); import slow')
  assert after_ctrl_c(process) == (130, '\nprog: interrupted\n')


@mutation('if isinstance(raised.exc_value, KeyboardInterrupt):', 'if False:')
def test_ctrl_c_is_not_lost_within_the_garbage_collector():
  callback = 'lambda *_: (print("ready", flush=True), time.sleep(5))'
  collect = 'gc.collect(); gc.callbacks.clear()'
  process = at_door(f'import gc; gc.callbacks.append({callback}); {collect}')
  assert after_ctrl_c(process) == (130, '\nprog: interrupted\n')


@mutation('except BrokenPipeError:', 'except ZeroDivisionError:')
@mutation('sys.stdout.flush()  # else', 'pass  # else', case='fewer than a buffer')
@mutation('if not stdout.poll(0):', 'if False:', case='of a server')
@pytest.mark.parametrize(
  'body, read, shown, status',
  [
    ('[print(i) for i in range(10**5)]', False, '', 128 + signal.SIGPIPE),
    ('print("a line")', False, '', 128 + signal.SIGPIPE),
    ('raise BrokenPipeError("a server left")', True, 'a server left', 1),
  ],
  ids=['many lines', 'fewer than a buffer', 'of a server'],
)
def test_a_command_whose_reader_left_ends_without_a_word(body, read, shown, status):
  process = at_door('sys.stdin.read(); ' + body)
  if not read:
    assert process.stdout
    process.stdout.close()
    process.stdout = None  # nothing for `communicate`
  error = process.communicate('')[1]
  assert (shown in error, bool(error)) == (True, bool(shown)), error
  assert process.returncode == status


def test_a_ctrl_c_that_is_ignored_stays_so():
  body = 'print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)'
  assert at_door(body, before='SIG_IGN').communicate()[0] == 'True\n'


def test_an_error_while_writing_says_what_and_where():
  with pytest.raises(OSError, match="No space.*, while writing metrics: 'run/m.jsonl'") as caught:
    with errors.writing('metrics', pathlib.Path('run/m.jsonl')), open('/dev/full', 'wb', 0) as file:
      file.write(b'1')
  assert caught.value.errno == 28


def test_a_file_that_the_error_names_is_kept(tmp_path):
  with pytest.raises(FileNotFoundError, match="while writing a copy: '.*none.txt'"):
    with errors.writing('a copy', tmp_path / 'copy'):
      (tmp_path / 'none.txt').read_bytes()


@pytest.mark.parametrize(
  'name, said',
  [
    ('none', 'there is no file none: expected text'),
    ('link', 'link is a link to none, which leads to no file: mend it or remove it'),
    ('link/a', 'link is a link to none, which leads to no file: mend it or remove it'),
    ('folder', 'folder is a folder: expected text'),
    ('pipe', 'pipe is a pipe, .* is read more than once: .* cat pipe > FILE, and name that'),
    ('file', ''),
  ],
)
@mutation('(pathlib.Path(path), *pathlib.Path(path).parents)', '(pathlib.Path(path),)')
@mutation('if link.is_symlink() and not link.exists():', 'if False:')
@mutation('if not (once or path.is_file()):', 'if False:')
def test_what_is_no_file_is_said(name, said, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  path = pathlib.Path(name)
  make = dict(
    link=lambda: pathlib.Path('link').symlink_to('none'), folder=path.mkdir,
    pipe=lambda: os.mkfifo(name), file=path.touch, none=lambda: None,
  )  # fmt: skip
  make[path.parts[0]]()
  found = {once: '' for once in (False, True)}
  for once in found:
    try:
      errors.require_file(path, 'text', once)
    except errors.UserError as error:
      found[once] = str(error)
  assert re.fullmatch(said, found[False])
  assert found[True] == ('' if name == 'pipe' else found[False])


@mutation('logging.getLogger(__name__).warning(line,', 'logging.warning(line,')
def test_a_warning_leaves_the_root_logger_as_it_is(monkeypatch, capfd):
  monkeypatch.setattr(logging.root, 'handlers', [])  # as in a program that has set none
  errors.warn('%d of %s', 2, 'three')
  assert not logging.root.handlers and capfd.readouterr().err == '2 of three\n'
