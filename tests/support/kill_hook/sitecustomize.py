"""Kills the process that imports it, and its group, -9 just before a moment of its work.

Python imports a `sitecustomize` by itself, in child processes too; `kill_at.py` sets PYTHONPATH and

  KILL_BELOW  how the paths begin that count
  KILL_AT     the number of the moment, from 1; or 'KIND NAME', the first of that kind whose path
              ends so. Kinds: make or change a file, folder, rename, remove; send one elsewhere.
"""

import os
import signal
import sys

KINDS = {'os.mkdir': 'folder', 'os.rename': 'rename', 'os.remove': 'remove', 'os.rmdir': 'remove'}
moments: list[str] = []


def is_sent() -> bool:
  """Tells whether the caller reads a file to send it."""
  frame = sys._getframe(1)
  while frame and not (frame.f_code.co_name == '_send' and 'copies' in frame.f_code.co_filename):
    frame = frame.f_back
  return frame is not None


def kind_of(event: str, arguments: tuple) -> str:
  """Returns the kind of a moment; '' if it is none."""
  if event != 'open':
    return KINDS.get(event, '')
  if isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
    return 'make'
  return 'send' if is_sent() else ''


def hook(event: str, arguments: tuple) -> None:
  path = arguments[0] if arguments and isinstance(arguments[0], str | os.PathLike) else ''
  path = os.fspath(path)
  if not isinstance(path, str) or not os.path.abspath(path).startswith(os.environ['KILL_BELOW']):
    return
  if kind := kind_of(event, arguments):
    moments.append(kind)
    wanted, _, end = os.environ['KILL_AT'].partition(' ')
    if wanted == str(len(moments)) or end and wanted == kind and path.endswith(end):
      os.killpg(os.getpgid(0), signal.SIGKILL)


if 'KILL_AT' in os.environ:
  sys.addaudithook(hook)
