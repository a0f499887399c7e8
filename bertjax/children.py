"""Commands and functions in processes of their own, which end when it does, by kill -9 too."""

import concurrent.futures
import multiprocessing
import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_FD = 'BERTJAX_PARENT_FD'  # read end of a pipe whose other end the parent holds
followed = False  # True where this process is such a child


def run(command: Sequence[str], env: Mapping[str, str]) -> int:
  """Runs a command of ours, whose `errors.door` calls `follow_parent`, to its end; returns its exit
  status."""
  reader, writer = os.pipe()
  try:
    child = subprocess.Popen(command, env={**env, _FD: str(reader)}, pass_fds=(reader,))
    os.close(reader)
    return child.wait()
  finally:
    os.close(writer)


def follow_parent() -> None:
  """In a child of `run`: ends this process when the parent is gone, by kill -9 too."""
  global followed
  fd = os.environ.pop(_FD, None)
  followed = fd is not None
  if fd is not None:
    _follow(int(fd))


def _follow(fd: int) -> None:
  """Ends this process when the last writer of a pipe is gone."""
  threading.Thread(target=_until_closed, args=(fd,), name='parent', daemon=True).start()


def _until_closed(fd: int) -> None:
  os.read(fd, 1)  # nothing is ever written: it returns when the last writer is gone
  os._exit(1)


def pool(
  workers: int, begin: Callable[[], object] | None = None
) -> concurrent.futures.ProcessPoolExecutor:
  """Returns a pool of processes, each of which first calls begin(). They are started anew: threads
  of TensorFlow and XLA do not survive a fork. Functions stand at the top of a module, all that they
  take and return is picklable."""
  spawn = multiprocessing.get_context('spawn')
  return concurrent.futures.ProcessPoolExecutor(workers, spawn, _begin, (begin,))


def _begin(begin: Callable[[], object] | None) -> None:
  parent = multiprocessing.parent_process()
  assert parent is not None
  _follow(parent.sentinel)
  if begin:
    begin()


def apart(function: Callable[..., Any], *args: Any) -> Any:
  """Returns function(*args), computed in a process of its own, see `pool`: whoever opens a GPU
  keeps most of its memory from the runs that follow. What it raises is raised here."""
  with pool(1) as process:
    return process.submit(function, *args).result()
