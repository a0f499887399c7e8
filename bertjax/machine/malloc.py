"""The allocator of the C library, as programs that XLA runs on CPUs need it.

XLA allocates what a program computes anew in every call. glibc maps so large a block when it is
asked for and unmaps it when it is let go, so each step gets pages that the kernel must fill with
zeros first: two fifths of the CPU time of a small model's step (LOG.md). Kept, the pages serve
every step. The process may then become larger by a few times what a program computes in, since
blocks that are let go side by side are not always filled by the next ones; so a process with a
program whose TIMES are not free goes on as before, whatever else it runs. What helps it are pages
of 2 MB in place of 4 kB, which glibc asks the kernel for only if the environment says so when the
process starts.
"""

import ctypes
import glob
import os
import pathlib
import re
import sys

from bertjax.errors import warn

TIMES = 4  # what a program computes in, as often as it is to fit into the memory that is free
# Of malloc.h. One arena, since only the first is never mapped; no maps; nothing is given back.
_ARENA_MAX, _MMAP_MAX, _TRIM_THRESHOLD = (-8, 1), (-4, 0), (-1, -1)
_ACCELERATORS = ('/dev/accel*', '/dev/vfio/[0-9]*', '/dev/nvidia[0-9]*', '/dev/kfd')
_MAP_AGAIN = (-4, 65536)  # glibc's own
# Which processes have huge pages: [always], [madvise]: those that ask for them, or [never].
_POLICY = '/sys/kernel/mm/transparent_hugepage/enabled'
_TUNABLES, _HUGE = 'GLIBC_TUNABLES', 'glibc.malloc.hugetlb'
_ASKED = 'BERTJAX_HUGE_PAGES'  # set once it was tried, whatever came of it
_one_arena = False
_keeps: bool | None = None  # of this process; None: no program has come yet, False: for good


def one_arena() -> bool:
  """Prepares a process of our own that computes on CPUs; returns whether it does. To be called
  before other threads are there: each has its arena by then. Where there is an accelerator, or
  another C library than glibc, nothing changes."""
  global _one_arena
  if _accelerated():
    return False
  _one_arena = _set(_ARENA_MAX)
  return _one_arena


def huge_pages() -> None:
  """Starts a process that computes on CPUs anew, as it was called, if that gives it huge pages. To
  be called before there is anything to lose. A process that has been told of huge pages, or whose
  kernel gives them to all or to none, goes on."""
  told = os.environ.get(_TUNABLES, '')
  if _accelerated() or _ASKED in os.environ or _HUGE in told or '[madvise]' not in _policy():
    return
  os.environ |= {_ASKED: '1', _TUNABLES: ':'.join(filter(None, [told, f'{_HUGE}=1']))}
  sys.stdout.flush()
  sys.stderr.flush()
  os.execv(sys.executable, sys.orig_argv)


def _accelerated() -> bool:
  return os.environ.get('JAX_PLATFORMS') != 'cpu' and any(map(glob.glob, _ACCELERATORS))


def _policy() -> str:
  path = pathlib.Path(_POLICY)
  return path.read_text(encoding='utf-8') if path.exists() else ''


def keep_pages(temporary: int) -> bool:
  """Lets the process keep its memory for the next call of a program that computes in so many bytes;
  returns whether it does. Once they are too many the process keeps nothing, for no program."""
  global _keeps
  if not _one_arena:
    return False
  if TIMES * temporary > (free := _free()) and _keeps is not False:
    warn(
      'A step takes %.1f GB while it computes. To keep them from step to step, %.1f GB must be '
      'free, and %.1f GB are, so steps take up to a third longer: free some, or take smaller '
      'batches (config.microbatches)', temporary / 1e9, TIMES * temporary / 1e9, free / 1e9,
    )  # fmt: skip
    if _keeps:
      _set(_MAP_AGAIN)
    _keeps = False
  elif _keeps is None:
    _keeps = _set(_MMAP_MAX) and _set(_TRIM_THRESHOLD)
  return _keeps


def _free() -> int:
  """Returns the bytes of memory that a new program could have, what the process holds included."""
  kilobytes = re.findall(r'MemAvailable: +(\d+)', pathlib.Path('/proc/meminfo').read_text())
  own = int(pathlib.Path('/proc/self/statm').read_text().split()[1]) * os.sysconf('SC_PAGE_SIZE')
  return int(kilobytes[0]) * 1024 + own


def _set(setting: tuple[int, int]) -> bool:
  mallopt = getattr(ctypes.CDLL(None), 'mallopt', None)
  return mallopt is not None and mallopt(*setting) == 1
