"""Commands that a run starts as child processes: they end when it does, however it ends."""

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
    threading.Thread(target=_until_closed, args=(int(fd),), name='parent', daemon=True).start()


def _until_closed(fd: int) -> None:
  os.read(fd, 1)  # nothing is ever written: it returns when the last writer is gone
  os._exit(1)


def apart(function: Callable[..., Any], *args: Any) -> Any:
  """Returns function(*args), computed in a process of its own: whoever opens a GPU keeps most of
  its memory from the runs that follow. The function stands at the top of a module, args are
  picklable; what it raises is raised here."""
  spawn = multiprocessing.get_context('spawn')
  with concurrent.futures.ProcessPoolExecutor(1, spawn) as process:
    return process.submit(function, *args).result()
