"""Commands that a run starts as child processes: they end when it does, however it ends."""

import os
import subprocess
import threading
from collections.abc import Mapping, Sequence

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
    follow(int(fd))


def follow(fd: int) -> None:
  """Ends this process when the last writer of a pipe is gone."""
  threading.Thread(target=_until_closed, args=(fd,), name='parent', daemon=True).start()


def _until_closed(fd: int) -> None:
  os.read(fd, 1)  # nothing is ever written: it returns when the last writer is gone
  os._exit(1)
