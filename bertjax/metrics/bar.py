"""Progress of `prepare` and `vocab`: a bar on a terminal, a line every few seconds elsewhere."""

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

_SECONDS = 10.0  # between lines where there is no terminal


class Bar:
  """Shows how far a pass over a corpus has come; a context manager."""

  def __init__(self, title: str):
    self._title = title
    self._start = self._printed = time.monotonic()
    columns = (TextColumn('{task.description}'), BarColumn(), TimeRemainingColumn())
    self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
    self._bar = self._progress.add_task(title, total=None)

  def __enter__(self) -> 'Bar':
    if self._progress.console.is_terminal:
      self._progress.start()
    return self

  def __exit__(self, *_) -> None:
    if self._progress.console.is_terminal:
      self._progress.stop()

  @property
  def seconds(self) -> float:
    """Since the start."""
    return time.monotonic() - self._start

  def show(self, text: str, done: float | None) -> None:
    """Updates the bar.

    Args:
      text: figures to show.
      done: from 0 to 1, or None where the end is not known.
    """
    if self._progress.console.is_terminal:
      total = None if done is None else 1.0
      self._progress.update(
        self._bar, description=f'{self._title} {text}', completed=done or 0.0, total=total
      )
    elif time.monotonic() - self._printed > _SECONDS:
      self._printed = time.monotonic()
      left = f', {self.seconds * (1 - done) / done:.0f} s left' if done else ''
      print(f'{self._title}: {text}{left}', file=sys.stderr, flush=True)
