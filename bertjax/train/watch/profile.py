"""The window of `config.profile`: steps whose time jax.profiler traces."""

import pathlib
from typing import Any

import jax

from bertjax.train.watch import Watcher


class Profile(Watcher):
  """Traces `config.profile.steps` steps from `config.profile.start` on, into workdir/profile; a run
  that begins or ends among them traces what it has of them."""

  def __init__(self, window: Any, workdir: str):
    self._window, self._directory, self._open = window, pathlib.Path(workdir, 'profile'), False

  def before(self, done: int) -> None:
    """Begins or ends the trace."""
    within = 0 <= done - self._window.start < self._window.steps
    if within and not self._open:
      jax.profiler.start_trace(self._directory)
      self._open = True
    elif not within:
      self.close()

  def close(self) -> None:
    """Writes what is traced so far, if anything is."""
    if self._open:
      self._open = False
      jax.profiler.stop_trace()
