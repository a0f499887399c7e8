"""Says in a line what ends this process within C code, which knows nothing of files and runs.

SIGBUS comes to who reads a mapped file that became shorter, in the middle of a copy, on the thread
that copies. SIGABRT is how jax ends a process that has lost the others. Neither thread holds a lock
then that Python needs, so a handler in Python may say what is known and end the process.
"""

import atexit
import contextlib
import ctypes
import os
import pathlib
import signal
import sys
from collections.abc import Callable

_SIGINFO = 4  # SA_SIGINFO of Linux
_ADDRESS = 16  # offset of si_addr in its siginfo_t
_HANDLERS = {}  # of signals, which have to stay


class _Action(ctypes.Structure):
  """`struct sigaction` of 64-bit Linux."""

  _fields_ = (
    ('handler', ctypes.c_void_p), ('mask', ctypes.c_ulong * 16), ('flags', ctypes.c_int),
    ('restorer', ctypes.c_void_p),
  )  # fmt: skip


def of_files() -> None:
  """Ends this process in one line, from now on, where a mapped file cannot be read."""
  _say(signal.SIGBUS, _of_file)


def of_processes(said: str) -> None:
  """Ends this process with a line, from now on, where jax or XLA gives it up."""
  _say(signal.SIGABRT, lambda info: said)
  atexit.register(signal.signal, signal.SIGABRT, signal.SIG_DFL)  # while there is an interpreter


def _say(number: int, words: Callable[[int], str]) -> None:
  """Has a signal say words of its siginfo_t, and nothing else; on Linux alone."""
  if sys.platform != 'linux' or number in _HANDLERS:
    return

  def end(number: int, info: int, context: int) -> None:
    del number, context
    os.write(2, f'\nbertjax: {words(info)}\n'.encode())
    os._exit(1)

  _HANDLERS[number] = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(end)
  action = _Action(ctypes.cast(_HANDLERS[number], ctypes.c_void_p), flags=_SIGINFO)
  ctypes.CDLL(None).sigaction(number, ctypes.byref(action), None)  # not faulthandler's


def _of_file(info: int) -> str:
  said, remedy = 'a mapped file', 'Put the file back'
  with contextlib.suppress(OSError):
    file = _file_at(ctypes.c_size_t.from_address(info + _ADDRESS).value)
    said = str(file or said)
    if file and (file.parent / 'record.json').exists():  # of `store/cache.py`
      remedy = f'Remove {file.parent}, which is made again'
  return (
    f'{said} became shorter while it was read, or its disk fails. {remedy}; a run goes on from its '
    'last checkpoint'
  )


def _file_at(address: int) -> pathlib.Path | None:
  for line in pathlib.Path('/proc/self/maps').read_text().splitlines():
    begin, end = (int(part, 16) for part in line.split(maxsplit=1)[0].split('-'))
    if begin <= address < end:
      return pathlib.Path(line.split(maxsplit=5)[-1])
  return None
