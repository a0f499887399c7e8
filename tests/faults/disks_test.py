"""Full disks: the run does without what is beside its state; the rest goes on once there is room.

A full disk is a small file system in memory, mounted for the test; that needs root on Linux.
"""

import contextlib
import pathlib
import signal
import subprocess

import prepare_runs
import processes
import pytest
from mutation import mutation
from processes import finish, steps_logged

from tests.faults.bench import bit_equal, ended, log, refused

pytestmark = pytest.mark.full


class Disk:
  """A file system of so many KiB at a path, until the test ends."""

  def __init__(self, closing: contextlib.ExitStack, path: pathlib.Path, kib: int):
    path.mkdir(parents=True, exist_ok=True)
    command = ['mount', '-t', 'tmpfs', '-o', f'size={kib}k', 'tmpfs', str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
      pytest.skip(f'no file system can be mounted: {done.stderr.strip()}')
    closing.callback(subprocess.run, ['umount', '-l', str(path)], check=True)
    self.path = path

  def fill(self) -> None:
    """Leaves no byte."""
    with open(self.path / 'filler', 'ab', buffering=0) as file, contextlib.suppress(OSError):
      while True:
        file.write(bytes(4096))

  def free(self, kib: int = 1 << 20) -> None:
    """Makes room."""
    (self.path / 'filler').unlink(missing_ok=True)
    subprocess.run(['mount', '-o', f'remount,size={kib}k', str(self.path)], check=True)


@pytest.fixture
def disk(tmp_path):
  """A function that mounts a disk of so many KiB at a path below the test's folder."""
  with contextlib.ExitStack() as closing:
    yield lambda name, kib: Disk(closing, tmp_path / name, kib)


@mutation(
  "    except OSError as error:\n      self._progress.note(f'curves",
  "    except ValueError as error:\n      self._progress.note(f'curves",
)
def test_tensorboard_and_the_curves_all_along(disk, rich_store, straight, tmp_path):
  """From the first to the last step."""
  workdir = tmp_path / 'run'
  for name in ('run/tensorboard', 'full'):
    disk(name, 4).fill()
  (workdir / 'curves.png').symlink_to(tmp_path / 'full/curves.png')
  said = finish(rich_store, workdir)
  for told in ('TensorBoard gets no more', 'curves.png was not drawn'):
    assert told in said, (told, said)
  bit_equal(workdir, straight)


@pytest.mark.parametrize(
  'name, said',
  [('checkpoints', 'could not be written to'), ('', 'are written when there is room')],
  ids=['checkpoints', 'the whole workdir'],
)
@mutation(
  'self._path, reason)\n        return',
  'self._path, reason)\n        self._lines.clear()',
  case='the whole workdir',
)
def test_a_part_of_the_workdir_or_all_of_it_for_some_steps(
  disk, rich_store, straight, tmp_path, name, said
):
  workdir = tmp_path / 'run'
  full = disk(workdir / name, 1 << 20)
  process = processes.start(rich_store, workdir)
  processes.wait_for(lambda: steps_logged(workdir) >= 4, process)
  process.send_signal(signal.SIGSTOP)  # so that the disk is full before the next save
  full.free(100)
  full.fill()
  process.send_signal(signal.SIGCONT)
  processes.wait_for(lambda: said in log(workdir), process)
  full.free()
  assert ended(process) == 0, log(workdir)[-3000:]  # orbax logs tracebacks of its threads
  bit_equal(workdir, straight)


@pytest.mark.parametrize(
  'name, kib, said',
  [('checkpoints', 100, 'could not be written to'), ('', 16, 'No space left on device')],
  ids=['checkpoints', 'the whole workdir'],
)
def test_until_the_run_gives_up_it_says_so_and_then_goes_on(
  disk, rich_store, straight, tmp_path, name, kib, said
):
  """No checkpoint can be written, or not even the first line of the workdir fits."""
  workdir = tmp_path / 'run'
  full = disk(workdir / name, kib)
  if not name:
    full.fill()
  done = processes.run(rich_store, workdir)  # orbax logs tracebacks of its threads
  told = done.stdout + done.stderr
  assert done.returncode != 0 and said in told, told
  assert not name or 'see that the disk has room' in told, told
  full.free()
  finish(rich_store, workdir)
  bit_equal(workdir, straight)


def test_prepare_of_a_run(disk, tmp_path):
  """The run makes its store in a workdir that has no room for it."""
  vocab = prepare_runs.write_vocabulary(tmp_path)
  prepare_runs.write_text(tmp_path / 'text.txt', 3000)
  given = (f'--config.data.input={tmp_path}/text.txt', f'--config.data.vocab={vocab}')
  given = (*given, '--config.total_steps=5')
  workdir, whole = tmp_path / 'run', tmp_path / 'straight'
  full = disk(workdir, 60)
  refused('', workdir, 'MB free, but the store needs about', flags=given)
  full.free()
  for place in (workdir, whole):
    finish('', place, *given)
  bit_equal(workdir, whole)
