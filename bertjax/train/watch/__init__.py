"""The watchers of a run, a file each: they look at its steps, and loop.py has them in one list."""

from typing import Any, NamedTuple

from bertjax.train.phase import Phase
from bertjax.types import Batch


class Step(NamedTuple):
  """A step that was taken."""

  done: int  # its number, from 1
  # phase, index: whose batch it was, and the number of the batch there
  phase: Phase
  index: int
  found: Any  # its metrics, on the device; None if its batch was left out
  batch: Batch  # this host's rows
  counts: dict[str, int]  # real, padding, predicted and dropped tokens of them


class Watcher:
  """Watches a run; the methods here do nothing. What must be closed is on the run's ExitStack."""

  def before(self, done: int) -> None:
    """Called before step number `done`."""

  def after(self, step: Step) -> None:
    """Called when a step is on its way: who reads its metrics here waits for the device."""

  def saved(self, step: Step, state: Any) -> dict[str, Any]:
    """Returns entries for the record of the checkpoint of the state after a step, as JSON; all
    processes call it. Raises UserError if the state must not be saved."""
    return {}
