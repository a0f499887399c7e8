"""The store is read once in the background and compared with its record, while the run trains.

One process of each host reads: `open_store` looked at sizes only, and a page that a disk has spoilt
looks like text. Where a file is not what was written the run stops, all processes after the same
step and without a checkpoint, since nobody knows which batches were fed from it.
"""

import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from bertjax.errors import UserError
from bertjax.examples import readers
from bertjax.machine import hosts
from bertjax.machine.stop import Stop
from bertjax.store import cache, verify


class Damaged(UserError):
  """Damage to the files that a run reads: its state cannot be trusted either."""


class Verification:
  """A context: within it a thread verifies what the run reads."""

  def __init__(self, run: Any, start: int, say: Callable[[str], None]):
    """
    Args:
      run: `setup.Run`.
      start: the step that this process begins after, for the message.
      say: shows a line.
    """
    self._start, self._say, self._asked = start, say, False
    self._path = run.store.path if readers.of(run.config.data).text else None
    plans = [getattr(phase.examples, 'plan', None) for phase in run.parts]
    self._plans = list(dict.fromkeys(plan for plan in plans if plan is not None))
    self._found = ''
    self._thread = threading.Thread(target=self._verify, name='verification', daemon=True)

  def __enter__(self) -> 'Verification':
    names = hosts.gather('verification', socket.gethostname())
    if names.index(names[hosts.index()]) == hosts.index():  # the first of its host
      self._thread.start()
    return self

  def __exit__(
    self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
  ) -> None:
    """Nothing is open: the thread only reads, and ends with the process."""

  def check(self, stop: Stop, leaving: bool) -> None:
    """Stops the run where damage was found; called after every step.

    Args:
      stop: makes all processes stop after the same step.
      leaving: whether this is that step.

    Raises:
      Damaged: a file is not what was written; it is named.
    """
    if hosts.count() == 1 or leaving:
      self._raise('leaving')
    elif self._found and not self._asked:
      self._asked = True
      stop.ask('damage')

  def finish(self) -> None:
    """At the end of the run: says where it was shorter than the reading.

    Raises:
      Damaged: as `check`.
    """
    self._raise('end')
    if self._thread.is_alive():
      self._say(
        'The run ended before all files of the store were verified: python -m bertjax.prepare '
        f'--verify --output={self._path} does it'
      )

  def _raise(self, where: str) -> None:
    """Raises what any process has found, on all of them."""
    found = [said for said in hosts.gather(f'damage/{where}', self._found) if said]
    if found:
      raise Damaged(found[0])

  def _verify(self) -> None:
    """The thread."""
    try:
      for plan in self._plans:
        if said := cache.fault(plan):
          cache.discard(plan)
          self._damaged(f'{said}. The plan is built again at the next start')
          return
      if self._path is None:
        return
      if not verify.has_checksums(self._path):
        self._say(f'{self._path} has no sha256 of its files: damage would go unnoticed')
        return
      for said in verify.faults(self._path):
        self._damaged(
          f'{said}. Put a copy of it in its place, or remove the store and prepare it again'
        )
        return
    except UserError as error:  # store.json is gone
      self._damaged(str(error))

  def _damaged(self, said: str) -> None:
    what = f'the checkpoints after step {self._start}' if self._start else 'the workdir'
    self._found = (
      f'damaged: {said}. This process was fed from it since step {self._start}: remove {what}'
    )
