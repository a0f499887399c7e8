"""Full disks: the run does without what is beside its state; the rest goes on once there is room.

A full disk is a small file system in memory, mounted for the case; that needs root on Linux.
"""

import functools
import pathlib
import signal
import subprocess

import processes
import pytest
from processes import steps_logged

from tests.faults import small
from tests.faults.bench import Bench, Case, bit_equal, ended, log


class Disk:
  """A file system of so many KiB at a path, until the case ends."""

  def __init__(self, bench: Bench, path: pathlib.Path, kib: int):
    path.mkdir(parents=True, exist_ok=True)
    command = ['mount', '-t', 'tmpfs', '-o', f'size={kib}k', 'tmpfs', str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
      pytest.skip(f'no file system can be mounted: {done.stderr.strip()}')
    bench.closing.callback(subprocess.run, ['umount', '-l', str(path)], check=True)
    self.path = path

  def fill(self) -> None:
    """Leaves no byte."""
    with open(self.path / 'filler', 'ab', buffering=0) as file:
      try:
        while True:
          file.write(bytes(4096))
      except OSError:
        pass

  def free(self, kib: int = 1 << 20) -> None:
    """Makes room."""
    (self.path / 'filler').unlink(missing_ok=True)
    subprocess.run(['mount', '-o', f'remount,size={kib}k', str(self.path)], check=True)


def full_for_people(bench: Bench) -> None:
  """TensorBoard and curves.png are on full disks from the first to the last step."""
  workdir = bench.folder / 'run'
  for folder in (workdir / 'tensorboard', bench.folder / 'full'):
    Disk(bench, folder, 4).fill()
  (workdir / 'curves.png').symlink_to(bench.folder / 'full/curves.png')
  done = processes.run(bench.store, workdir)
  said = done.stdout + done.stderr
  assert done.returncode == 0 and 'Traceback' not in said, said
  for told in ('TensorBoard gets no more', 'curves.png was not drawn'):
    assert told in said, (told, said)
  bit_equal(workdir, bench.shared.straight)


def full_for_a_while(bench: Bench, name: str, said: str) -> None:
  """A part of the workdir, or all of it, has no room for some steps, then it has."""
  workdir = bench.folder / 'run'
  disk = Disk(bench, workdir / name, 1 << 20)
  (process,) = bench.watch(processes.start(bench.store, workdir))
  processes.wait_for(lambda: steps_logged(workdir) >= 4, process)
  process.send_signal(signal.SIGSTOP)  # so that the disk is full before the next save
  disk.free(100)
  disk.fill()
  process.send_signal(signal.SIGCONT)
  processes.wait_for(lambda: said in log(workdir), process)
  disk.free()
  assert ended(process) == 0, log(workdir)[-3000:]  # orbax logs tracebacks of its threads
  bit_equal(workdir, bench.shared.straight)


def full_until_the_end(bench: Bench) -> None:
  """No checkpoint can be written: that is said, and the same command goes on when there is room."""
  workdir = bench.folder / 'run'
  disk = Disk(bench, workdir / 'checkpoints', 100)
  done = processes.run(bench.store, workdir)
  said = done.stdout + done.stderr
  assert done.returncode != 0 and 'could not be written to' in said, said
  assert 'see that the disk has room' in said, said
  disk.free()
  done = processes.run(bench.store, workdir)
  assert done.returncode == 0, done.stderr
  bit_equal(workdir, bench.shared.straight)


def full_from_the_start(bench: Bench) -> None:
  """Not even the first line of the workdir fits."""
  workdir = bench.folder / 'run'
  disk = Disk(bench, workdir, 16)
  disk.fill()
  done = processes.run(bench.store, workdir)
  said = done.stdout + done.stderr
  assert done.returncode != 0 and 'No space left on device' in said, said
  disk.free()
  done = processes.run(bench.store, workdir)
  assert done.returncode == 0, done.stderr
  bit_equal(workdir, bench.shared.straight)


def full_for_prepare_of_a_run(bench: Bench) -> None:
  """The run makes its store in a workdir that has no room for it."""
  text = small.text(bench.folder, 3000)
  flags = [f'--config.data.input={text}', f'--config.data.vocab={bench.folder}/vocab.txt']
  flags += ['--config.total_steps=5']
  workdir, whole = bench.folder / 'run', bench.folder / 'straight'
  disk = Disk(bench, workdir, 60)
  done = processes.run('', workdir, *flags)
  said = done.stdout + done.stderr
  assert done.returncode == 1 and 'but the store needs about' in said, said
  assert 'Traceback' not in said, said
  disk.free()
  for place in (workdir, whole):
    done = processes.run('', place, *flags)
    assert done.returncode == 0, done.stderr
  bit_equal(workdir, whole)


def partly(name: str, said: str) -> Case:
  work = functools.partial(full_for_a_while, name=name, said=said)
  return Case('full disks', f'{name or "the whole workdir"} for some steps', work)


CASES = [
  Case('full disks', 'TensorBoard and curves.png all along', full_for_people),
  partly('checkpoints', 'could not be written to'),
  partly('', 'are written when there is room'),
  Case('full disks', 'checkpoints to the end', full_until_the_end),
  Case('full disks', 'the workdir from the start', full_from_the_start),
  Case('full disks', 'prepare of a run', full_for_prepare_of_a_run),
]  # fmt: skip
