"""Names a mapped file that became shorter, or whose disk fails: who reads what is gone gets SIGBUS,
which ends a process without a word of the file.

The signal comes in the middle of a copy, on the thread that copies. It holds no lock then that
Python needs, so a handler in Python may look for the file, say it and end the process.
"""

import contextlib
import ctypes
import functools
import os
import pathlib
import signal
import sys
from typing import Any

_SIGINFO = 4  # SA_SIGINFO of Linux
_ADDRESS = 16  # offset of si_addr in its siginfo_t


class _Action(ctypes.Structure):
  """`struct sigaction` of 64-bit Linux."""

  _fields_ = (
    ('handler', ctypes.c_void_p), ('mask', ctypes.c_ulong * 16), ('flags', ctypes.c_int),
    ('restorer', ctypes.c_void_p),
  )  # fmt: skip


@functools.cache
def watch() -> Any:
  """Ends this process in one line, from now on, where a mapped file cannot be read. Returns the
  handler, which has to stay; None on other systems than Linux."""
  if sys.platform != 'linux':
    return None
  handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(_end)
  action = _Action(ctypes.cast(handler, ctypes.c_void_p), flags=_SIGINFO)
  ctypes.CDLL(None).sigaction(signal.SIGBUS, ctypes.byref(action), None)  # not faulthandler's
  return handler


def _end(number: int, info: int, context: int) -> None:
  del number, context
  said = 'a mapped file'
  with contextlib.suppress(OSError):
    said = _file_at(ctypes.c_size_t.from_address(info + _ADDRESS).value)
  said = f'{said} became shorter while it was read, or its disk fails. Put the file back'
  os.write(2, f'\nbertjax: {said}; a run goes on from its last checkpoint\n'.encode())
  os._exit(1)


def _file_at(address: int) -> str:
  for line in pathlib.Path('/proc/self/maps').read_text().splitlines():
    begin, end = (int(part, 16) for part in line.split(maxsplit=1)[0].split('-'))
    if begin <= address < end:
      return line.split(maxsplit=5)[-1]
  return 'a mapped file'
