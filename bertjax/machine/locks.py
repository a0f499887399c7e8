"""Locks between processes: files that one process holds, and that say which.

The system lets go of a lock when its holder ends, however it ends. The file of a holder that was
killed stays where it is and blocks nobody. A holder that ends by itself removes its file.
"""

import contextlib
import errno
import fcntl
import json
import os
import pathlib
import socket
import time
from collections.abc import Callable, Iterator
from typing import IO

from bertjax import json_files
from bertjax.errors import UserError, warn

POLL_S = 0.2  # between two looks at a lock that another process holds
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)  # of file systems that know none
_WITHOUT = 'nobody: there are no locks'


@contextlib.contextmanager
def alone(path: pathlib.Path, refusal: str) -> Iterator[None]:
  """Holds a lock; does not wait for it. Raises UserError, which begins as 'another run is at work
  in DIR' and names the holder, if another process holds it; OSError if the file cannot be made."""
  file, holder = _take(path)
  if file is None:
    raise UserError(f'{refusal}: {holder}. Wait for it or stop it, or name another directory')
  with _held(path, file):
    yield


@contextlib.contextmanager
def in_turn(path: pathlib.Path, say: Callable[[str], None]) -> Iterator[bool]:
  """Holds a lock, once all who hold it before have let go. Yields whether it keeps others out:
  False on a file system without locks. Raises OSError if the file cannot be made."""
  said = None
  while True:
    file, holder = _take(path)
    if file is not None:
      break
    if holder != said:
      say(holder)
      said = holder
    time.sleep(POLL_S)
  with _held(path, file):
    yield holder != _WITHOUT


@contextlib.contextmanager
def tried(path: pathlib.Path) -> Iterator[bool]:
  """Yields whether a lock could be taken, and holds it until the end. Raises OSError if the file
  cannot be made."""
  file, _ = _take(path)
  if file is None:
    yield False
    return
  with _held(path, file):
    yield True


def is_free(path: pathlib.Path) -> bool:
  """Returns whether nobody holds a lock; a file that cannot be read counts as held."""
  try:
    with open(path, 'rb') as file:
      fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
  except FileNotFoundError:
    return True
  except OSError:
    return False
  return True


@contextlib.contextmanager
def _held(path: pathlib.Path, file: IO[str]) -> Iterator[None]:
  with file:
    try:
      yield
    finally:
      path.unlink(missing_ok=True)


def _take(path: pathlib.Path) -> tuple[IO[str] | None, str]:
  """Returns the open file that holds the lock; or None, and who holds it."""
  while True:
    file = open(path, 'a+', encoding='utf-8')  # noqa: SIM115  (closed by the one who holds it)
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      with file:
        return None, _named(_read(file))
    except OSError as error:
      if error.errno not in _NO_LOCKS:
        file.close()
        raise
      warn(
        '%s: this file system has no locks (%s); see that no other process is at work there',
        path, error.strerror,
      )  # fmt: skip
      return file, _WITHOUT
    if not _is(file, path):  # its holder has removed it since it was opened
      file.close()
      continue
    if before := _read(file):
      warn('%s was left by %s, which has ended: taken over', path, _named(before))
    # Who holds it is for messages alone: on a full disk the lock holds without them.
    with contextlib.suppress(OSError):
      file.truncate(0)
      said = dict(host=socket.gethostname(), pid=os.getpid(), since=time.time())
      os.write(file.fileno(), json.dumps(said).encode())  # no buffer, which fails again at the end
    return file, ''


def _is(file: IO[str], path: pathlib.Path) -> bool:
  try:
    return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
  except FileNotFoundError:
    return False


def _read(file: IO[str]) -> dict:
  """Reads a lock's record of its holder; {} if there is none, or it is torn."""
  file.seek(0)
  try:
    found = json_files.loads(file.read())
  except ValueError:
    return {}
  return found if isinstance(found, dict) else {}


def _named(holder: dict) -> str:
  if 'pid' not in holder or 'host' not in holder:
    return 'a process that did not say its name'
  since = time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(holder.get('since', 0)))
  return f'process {holder["pid"]} on {holder["host"]}, since {since}'
