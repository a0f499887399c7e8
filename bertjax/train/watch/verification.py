"""The store is read once in the background and compared with its record, while the run trains.

One process of each host reads: `open_store` looked at sizes only, and a page that a disk has spoilt
looks like text. Where a file is not what was written the run stops, all processes after the same
step and without a checkpoint, since nobody knows which batches were fed from it.
"""

import socket
import threading
from collections.abc import Callable
from typing import Any

from bertjax.errors import UserError
from bertjax.examples import readers
from bertjax.machine import hosts
from bertjax.machine.stop import Stop
from bertjax.store import cache, verify
from bertjax.train.watch import Step, Watcher


class Damaged(UserError):
  """Damage to the files that a run reads: its state cannot be trusted either."""


class Verification(Watcher):
  """Verifies, in a thread, what the run reads."""

  def __init__(self, run: Any, start: int, stop: Stop, say: Callable[[str], None]):
    """Begins, on the first process of each host, after the step `start`; `stop` makes all processes
    stop after the same step."""
    self._start, self._stop, self._say, self._asked = start, stop, say, False
    self._done = start  # the last step that was taken
    self._path = run.store.path if readers.of(run.config.data).text else None
    plans = [getattr(phase.examples, 'plan', None) for phase in run.parts]
    self._plans = list(dict.fromkeys(plan for plan in plans if plan is not None))
    self._found = ''
    self._thread = threading.Thread(target=self._verify, name='verification', daemon=True)
    names = hosts.gather('verification', socket.gethostname())
    if names.index(names[hosts.index()]) == hosts.index():
      self._thread.start()

  def before(self, done: int) -> None:
    """Ends a run of one process where damage was found; has several agree on a step to end at.
    Raises Damaged if a file is not what was written; it is named."""
    self._done = done - 1
    if hosts.count() == 1:
      self._raise(done)
    elif self._found and not self._asked:
      self._asked = True
      self._stop.ask('damage')

  def saved(self, step: Step, state: Any) -> dict[str, Any]:
    """Refuses to save where any process has found damage, or a file has another size by now: raises
    as `before`, on all of them. A file that was moved or removed is read on as it was."""
    if self._path and not self._found and (said := next(verify.other_sizes(self._path), '')):
      self._damaged(said)
    self._done = step.done
    self._raise(step.done)
    return {}

  def finish(self) -> None:
    """At the end of the run: says where it was shorter than the reading; raises as `before`."""
    self._raise('end')
    if self._thread.is_alive():
      self._say(
        'The run ended before all files of the store were verified: python -m bertjax.prepare '
        f'--verify --output={self._path} does it'
      )

  def _raise(self, where: Any) -> None:
    found = [said for said in hosts.gather(f'damage/{where}', self._found) if said]
    if found and self._done == self._start:
      raise Damaged(found[0])
    if found:
      what = f'the checkpoints after step {self._start}' if self._start else 'the workdir'
      raise Damaged(f'{found[0]}. The run may have read it since step {self._start}: remove {what}')

  def _verify(self) -> None:
    """Reads the files once, as the body of the thread."""
    try:
      for plan in self._plans:
        if said := cache.fault(plan):
          cache.discard(plan)
          self._damaged(f'{said}. The plan is built again at the next start')
          return
      if self._path is None:
        return
      for said in verify.faults(self._path):
        self._damaged(
          f'{said}. Put a copy of it in its place, or remove the store and prepare it again'
        )
        return
    except UserError as error:  # store.json is gone
      self._damaged(str(error))

  def _damaged(self, said: str) -> None:
    where = f'{hosts.named(hosts.index())}: ' if hosts.count() > 1 else ''
    self._found = f'{where}damaged: {said}'
