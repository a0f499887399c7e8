"""`python -m bertjax.prepare` that is killed, or finds no room, or is not alone."""

import contextlib
import errno
import itertools
import os
import pathlib
import random
import signal
import subprocess
import time

import pytest
from kill_at import killed
from mutation import mutation
from no_room import no_room
from prepare_runs import (
  assert_same_text,
  command,
  contents,
  goes_on,
  run,
  stop_after,
  write_text,
)  # fmt: skip

from bertjax.machine import durable
from bertjax.store import encode, unfinished
from bertjax.store import writer as store_writer
from bertjax.store.reader import open_store

mutation('if not self.train.parts:', 'if False:')

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_broken_off_anywhere_it_ends_with_the_same_bytes(tmp_path, given):
  given |= dict(part_mb=0.001)
  assert run(output=tmp_path / 'whole', **given).meta['parts'] > 5
  draw, breaks = random.Random(0), 0
  while not (tmp_path / 's').exists():
    # The last two notes are the descriptions of the held-out store and of the store itself.
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
      stop_after(patch, draw.randrange(3))
      breaks += 1
      run(output=tmp_path / 's', **given)
  assert breaks > 5
  assert contents(tmp_path / 'whole') == contents(tmp_path / 's')
  assert not (tmp_path / 's.partial').exists()


@pytest.mark.parametrize('module, name', [(store_writer, '_save'), (unfinished, 'give_name')])
def test_broken_off_in_the_first_part_or_before_its_name_it_goes_on(tmp_path, given, module, name):
  def interrupt(*_):
    raise KeyboardInterrupt

  goes_on(tmp_path, lambda patch: patch.setattr(module, name, interrupt), **given)


@pytest.mark.full
def test_killed_at_each_moment_before_its_first_note_it_begins_anew(tmp_path, given):
  run(output=tmp_path / 'whole', **given)
  for number in itertools.count(1):
    output = tmp_path / f's{number}'
    killed(command(output=output, **given), number, output, os.environ)
    noted = (tmp_path / f's{number}.partial/progress.json').exists()
    run(output=output, **given)
    assert contents(tmp_path / 'whole') == contents(output), number
    if noted:
      break
  assert number >= 5  # the lock, the directory, the note beside its place, its name, the first part


@mutation('os.write(file.fileno(), json.dumps(said).encode())', 'file.write(json.dumps(said))')
@mutation("<= {f'{PROGRESS}.tmp'}:", '<= set():')
def test_without_room_for_its_first_note_it_begins_anew(tmp_path, given, capsys):
  del capsys  # what it says goes to no file, which could not grow either
  run(output=tmp_path / 'whole', **given)
  with no_room(), pytest.raises(OSError, match='while writing a part of the store'):
    run(output=tmp_path / 's', **given)
  assert [path.name for path in (tmp_path / 's.partial').iterdir()] == ['progress.json.tmp']
  (tmp_path / 'e.partial').mkdir()  # all that is there of one that was killed a moment earlier
  for name in ('s', 'e'):
    run(output=tmp_path / name, **given)
    assert contents(tmp_path / 'whole') == contents(tmp_path / name)


def test_unfinished_store_of_something_else_is_not_continued(tmp_path, vocab, given):
  given |= dict(output=tmp_path / 's', part_mb=0.001)
  with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
    stop_after(patch, 2)
    run(**given)
  with pytest.raises(ValueError, match='s.partial was begun with something else:\n  options'):
    run(**(given | dict(split='lines')))
  vocab.write_text(vocab.read_text() + 'new\n')
  with pytest.raises(ValueError, match='vocabulary: there .*sha256'):
    run(**given)


@mutation("with writing('a part of the store', self._path):", 'if True:')
def test_full_disk_is_reported_and_can_be_continued(tmp_path, given):
  full_disk = 'the disk is full.*while writing a part of the store: .*s.partial.*make room and give'

  def stop(patch):
    count = itertools.count()

    def full(descriptor):
      if next(count) == 12:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    patch.setattr(store_writer.os, 'fsync', full)

  goes_on(tmp_path, stop, SystemExit, full_disk, part_mb=0.001, **given)


def test_a_disk_that_is_full_at_the_end_is_reported(tmp_path, given, monkeypatch):
  save = durable.write_json

  def full(path, value):
    if path.name == 'store.json':
      raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    save(path, value)

  monkeypatch.setattr(durable, 'write_json', full)
  with pytest.raises(SystemExit, match='the disk is full.*while writing the store: .*s.partial'):
    run(output=tmp_path / 's', **given)


@mutation("with Bar('prepare') as bar, contextlib.closing(found):", "with Bar('prepare') as bar:")
def test_workers_end_where_an_error_does(tmp_path, given, monkeypatch):
  ended = []

  def encoded(*_):
    try:
      yield None
    finally:
      ended.append(True)

  monkeypatch.setattr(encode, 'encode_all', encoded)
  with pytest.raises(AttributeError) as error:  # the batch is none
    run(output=tmp_path / 's', **given)
  assert ended and error  # which keeps all frames


@mutation("locks.alone(lock, f'another process is writing {partial}')", 'contextlib.nullcontext()')
def test_a_store_is_written_by_one_process_at_a_time(tmp_path, given):
  write_text(given['input'], documents=500)
  given |= dict(part_mb=0.001)
  words = command(output=tmp_path / 's', **given)
  first = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
  while not list(tmp_path.glob('s.partial/tokens-*')):
    assert first.poll() is None
    time.sleep(0.005)
  first.send_signal(signal.SIGSTOP)
  with pytest.raises(ValueError, match=f's.partial: process {first.pid} on .* Wait for it'):
    run(output=tmp_path / 's', **given)
  first.kill()
  first.wait()
  assert (tmp_path / 's.partial.lock').exists()
  run(output=tmp_path / 's', **given)
  run(output=tmp_path / 'whole', **given)
  # Blocks are small in this process alone, so parts may end elsewhere.
  for held in ('', 'heldout'):
    assert_same_text(*(open_store(tmp_path / name / held) for name in ('s', 'whole')))
  assert not list(tmp_path.glob('*.lock'))


@pytest.mark.parametrize(
  'text',
  [
    '{"ident',
    '[]',
    '{"identity": {}, "stats": {}, "parts": {"train": []}, "languages": [], "begun": []}',
  ],
)
def test_a_torn_note_of_progress_is_named(tmp_path, given, text):
  (tmp_path / 's.partial').mkdir()
  (tmp_path / 's.partial/progress.json').write_text(text)
  with pytest.raises(
    ValueError, match='s.partial.*(got no JSON|got list|has no ).*: remove .*s.partial'
  ):
    run(output=tmp_path / 's', **given)


@pytest.mark.parametrize('times', [1, 2])
@mutation('(signal.SIG_BLOCK, [signal.SIGINT])', '(signal.SIG_BLOCK, [])', case='1')
@mutation("'ignore:resource_tracker'", "''", file='bertjax/errors.py', case='2')
def test_ctrl_c_of_a_terminal_while_workers_begin_is_one_line(tmp_path, given, times):
  """It comes to all processes at once; workers import for a while before they do anything."""
  words = command(output=tmp_path / 's', workers=2, **given)
  streams = dict(stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
  process = subprocess.Popen(words, cwd=ROOT, text=True, start_new_session=True, **streams)
  while not any(b'--multiprocessing-fork' in line for line in commands_of_children(process.pid)):
    assert process.poll() is None
    time.sleep(0.002)
  for _ in range(times):
    time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
  said = process.communicate(timeout=60)[1]
  assert said.endswith('\nbertjax.prepare: interrupted\n') and 'Traceback' not in said, said


def commands_of_children(pid: int) -> list[bytes]:
  """The command lines of the processes that the main thread of a process has started."""
  children = pathlib.Path(f'/proc/{pid}/task/{pid}/children').read_text().split()
  lines = []
  for child in children:
    with contextlib.suppress(OSError):  # it has ended
      lines.append(pathlib.Path(f'/proc/{child}/cmdline').read_bytes())
  return lines
