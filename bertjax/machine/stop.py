"""End of a run before its last step: signals, on any of its processes.

SIGTERM, SIGINT and SIGHUP ask for a stop, a second one of them stops at once. Before the first step
there is nothing to save, so the processes end as soon as all know of it, also while a step is being
compiled; after it all of them save a checkpoint after the same step.

A thread of its own watches: the main thread may be within XLA for minutes, or wait for a device
that waits for another process. It takes the main thread's place when processes agree on a step:
each says how many steps it has begun, none begins another one until all have said so, and all stop
one step after the furthest. What others say wakes it through a second thread, in calls that wait: a
process that asked every second would be given up where it stands still (`hosts.WAIT_S`).

An error that ends one process ends the others too: they would wait for it, and it for them.
"""

import atexit
import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import NoReturn

from bertjax.machine import hosts

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
GRACE_S = 60.0  # for the others to say where they are
FAILED_S = 5.0  # in which what ended another process ends this one by itself, where it can
_HEARD = b'\xff'  # no signal: another process, or the run itself, has said something
ONE_S = 1.0  # a scheduler may tell a process and its parent, which passes it on: that is one signal


class Stop:
  """A context, within which signals ask for a stop; `reason` is the name of one that came to any
  process."""

  def __init__(self, say: Callable[[str], None]):
    self.reason = ''
    self._say, self._lock = say, threading.Lock()
    self._done: int | None = None  # steps begun; None before the loop
    self._agreed: int | None = None  # the step after which to stop
    self._reader, self._writer = os.pipe()
    os.set_blocking(self._writer, False)
    self._thread = threading.Thread(target=self._watch, name='stop', daemon=True)
    self._ears = threading.Thread(target=self._listen, name='stop/others', daemon=True)

  def __enter__(self) -> 'Stop':
    # The handlers do nothing: what counts is the byte that Python writes for each signal, at once,
    # whatever the main thread is doing.
    # One that was ignored stays so: SIGHUP of nohup, SIGINT of a shell's background job.
    heard = [n for n in SIGNALS if signal.getsignal(n) is not signal.SIG_IGN]
    self._handlers = {number: signal.signal(number, lambda *_: None) for number in heard}
    self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
    self._thread.start()
    if (hosts.told_count() or 1) > 1:
      self._ears.start()
    return self

  def __exit__(
    self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
  ) -> None:
    if self._ears.is_alive():
      with contextlib.suppress(RuntimeError):  # the coordinator may be gone
        hosts.tell('stop/failed', f'process {hosts.index()}: {error}' if error else '')
        hosts.tell('stop/asked')
      self._ears.join()  # must not be within jax where Python ends
    if error is not None and hosts.count() > 1:
      atexit.register(_leave_first)  # before jax waits for processes that are gone by then
    signal.set_wakeup_fd(self._wakeup)
    for number, handler in self._handlers.items():
      signal.signal(number, handler)
    os.write(self._writer, b'\0')
    self._thread.join(2.0)

  def at(self, done: int) -> bool:
    """Returns whether to save and leave after step `done`, the number of steps begun."""
    with self._lock:  # held while processes agree, which is what keeps them from going on
      self._done = done
      return self._agreed is not None and done >= self._agreed

  def ask(self, reason: str) -> None:
    """Asks all processes to stop, as a signal does."""
    with self._lock:
      self.reason = self.reason or reason
    if hosts.count() > 1:
      hosts.tell('stop/asked', reason)
    os.write(self._writer, _HEARD)

  def _listen(self) -> None:
    for key in ('stop/asked', 'stop/failed'):  # who fails says both, in the other order
      with contextlib.suppress(RuntimeError):  # the other thread meets it, too
        while hosts.told(key, hosts.WAIT_S) is None:
          pass
      os.write(self._writer, _HEARD)

  def _watch(self) -> None:
    first = failed = 0.0
    while True:
      left = max(failed - time.monotonic(), 0.0) if failed else None
      ready, _, _ = select.select([self._reader], [], [], left)
      for number in os.read(self._reader, 64) if ready else b'':
        if number == 0:  # of `__exit__`
          return
        if number in SIGNALS:
          if not first:
            first = time.monotonic()
          elif time.monotonic() - first > ONE_S:
            self._leave(f'{signal.Signals(number).name} came twice: stopped at once', 128 + number)
          self.ask(signal.Signals(number).name)
      try:
        alone = hosts.count() == 1
        if error := not alone and hosts.told('stop/failed'):
          failed = failed or time.monotonic() + FAILED_S + (hosts.index() == 0)  # it goes last
          if time.monotonic() > failed:
            self._say = lambda said: print(said, file=sys.stderr)  # each has a log of its own
            self._leave(f'Left after the error that ended {error}', 1)
        if self._agreed is None and not alone:
          self.reason = self.reason or hosts.told('stop/asked') or ''
        if self._agreed is None and self.reason:
          self._agree()
      except RuntimeError as error:  # also jax's, of a backend that the main thread has ended
        said = str(error).partition('\n')[0]
        self._leave(f'Left after {said}: the last checkpoint is what resumes', 1)

  def _agree(self) -> None:
    with self._lock:
      here = -1 if self._done is None else self._done
      steps = [int(s) for s in hosts.gather('stop/steps', str(here), GRACE_S)]
      if max(steps) < 0:
        if hosts.count() > 1:
          hosts.barrier('stop/left', GRACE_S)
          if hosts.index() == 0:
            time.sleep(2.0)  # the coordinator goes last: it would take the others along
        said = f'Stopped by {self.reason} before this start took a step; the same command goes on'
        self._leave(said, 0)
      # One process needs no step more: it has begun none since it said where it is.
      self._agreed = max(steps) + (hosts.count() > 1)

  def _leave(self, said: str, status: int) -> None:
    """Ends the process from the thread: no other can, and nothing is open that needs closing."""
    with contextlib.suppress(OSError):  # nobody may be there to read
      self._say(said)
    _end(status)


def _leave_first() -> None:
  """Ends the process after its error was shown; the coordinator when all have heard of it."""
  if hosts.index() == 0:
    time.sleep(FAILED_S + 2.0)
  _end(1)


def _end(status: int) -> NoReturn:
  """Ends the process at once; nobody may be there to read its last words."""
  for stream in (sys.stdout, sys.stderr):
    with contextlib.suppress(OSError):
      stream.flush()
  os._exit(status)
