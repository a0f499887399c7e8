"""Progress of a command: a bar on a terminal, plain lines elsewhere; imports no jax."""

import contextlib
import errno
import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import rich.progress
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

_SECONDS = 10.0  # between lines where nothing moves


@contextlib.contextmanager
def to_the_screen() -> Iterator[None]:
  """Shows what it can: a terminal that was closed costs a run nothing."""
  try:
    yield
  except OSError as error:
    if error.errno != errno.EIO:
      raise


class Progress:
  """A live bar on a terminal, one plain line per log elsewhere, nothing on other processes."""

  shown: ClassVar['Progress | None'] = None  # that of the run that goes on

  def __init__(self, total_steps: int):
    import jax  # slow; `prepare` needs the bar below without it

    self._total, Progress.shown = total_steps, self
    self._started = time.perf_counter()
    self._base: tuple[int, float] | None = None
    self._first = jax.process_index() == 0
    self._begun = False
    self._bar: rich.progress.Progress | None = None
    self._console = console = Console()
    if self._first and console.is_terminal:
      self._bar = rich.progress.Progress(
        TextColumn('step {task.completed:,.0f}/{task.total:,.0f}'),
        BarColumn(None),
        TextColumn('{task.description}', markup=False),
        console=console,
        expand=True,
      )
      self._task = self._bar.add_task('', total=total_steps)

  def expect(self, total_steps: int) -> None:
    """Sets how many steps there are to be."""
    self._total = total_steps
    if self._bar:
      self._bar.update(self._task, total=total_steps)

  @to_the_screen()
  def note(self, text: str) -> None:
    """Says what is going on, with the seconds since the start; above the bar if there is one."""
    if not self._first:
      return
    line = f'[{time.perf_counter() - self._started:7.1f} s] {text}'
    if self._bar:
      self._bar.console.print(line, markup=False, highlight=False)
    else:
      print(line, flush=True)

  @to_the_screen()
  def show(self, table: Any) -> None:
    """Prints a rich table."""
    if self._first:
      self._console.print(table)

  @to_the_screen()
  def step(self, step: int, loss: float | None) -> None:
    """Moves the bar to a step, by the newest loss that is known: None in the first step."""
    if not self._first:
      return
    if self._bar:
      self._bar.update(self._task, completed=step)
      self._bar.start()
    if loss is not None and not self._begun:  # the rest is said at the first log
      self._begun = True
      if self._bar:
        self._bar.update(self._task, description=f'loss {loss:.4f}')
      else:
        print(f'step {step - 1:,}/{self._total:,}  loss {loss:.4f}', flush=True)

  @to_the_screen()
  def update(self, step: int, scalars: Mapping[str, float]) -> None:
    """Shows a logged step: tokens_per_second, and loss, accuracies and time/<part> where there are
    any."""
    if not self._first:
      return
    parts = [f'loss {scalars["loss"]:.4f}' if 'loss' in scalars else 'nothing trained']
    parts += [f'{k} {v:.3f}' for k, v in scalars.items() if k.endswith('accuracy')]
    parts += [f'{scalars["tokens_per_second"]:,.0f} tokens/s', f'ETA {self._eta(step)}']
    seconds = {k.removeprefix('time/'): v for k, v in scalars.items() if k.startswith('time/')}
    if verdict(seconds) != 'compute-bound':
      parts.append(verdict(seconds))
    text, self._begun = '  '.join(parts), True
    if self._bar:
      self._bar.start()
      self._bar.update(self._task, completed=step, description=text)
    else:
      print(f'step {step:,}/{self._total:,}  {text}', flush=True)

  @to_the_screen()
  def close(self) -> None:
    """Leaves the terminal as it was."""
    Progress.shown = None
    if self._bar:
      self._bar.stop()

  def _eta(self, step: int) -> str:
    """Time to the last step at the rate since the first update, when compilation was over."""
    now = time.perf_counter()
    if self._base is None:
      self._base = (step, now)
    if step == self._base[0]:
      return '-' if step < self._total else '0:00'
    seconds = (self._total - step) * (now - self._base[1]) / (step - self._base[0])
    return clock(math.ceil(seconds))


def passing(title: str, items: Iterable[Any], total: int) -> Iterator[Any]:
  """Yields items, and says every ten seconds of a run how many of a total of about so many went."""
  started = said = time.monotonic()
  for number, item in enumerate(items):
    now = time.monotonic()
    if number and now - said > _SECONDS and Progress.shown:
      said, left = now, max(total - number, 0) * (now - started) / number
      Progress.shown.note(f'{title}: {number:,} of {total:,}, {clock(math.ceil(left))} left')
    yield item


def clock(seconds: int) -> str:
  """1:02:03, or 2:03 below an hour."""
  minutes, seconds = divmod(seconds, 60)
  hours, minutes = divmod(minutes, 60)
  return f'{hours}:{minutes:02}:{seconds:02}' if hours else f'{minutes}:{seconds:02}'


def verdict(seconds: Mapping[str, float]) -> str:
  """Returns 'compute-bound', or what names the largest other part with more than a tenth of the
  seconds, 'input-bound'; `other` is the host's."""
  waits = {part: spent for part, spent in seconds.items() if part != 'compute'}
  worst = max(waits, key=lambda part: waits[part], default='compute')
  total = sum(seconds.values())
  slow = total and waits.get(worst, 0.0) > 0.1 * total
  part = worst if slow else 'compute'
  return f'{"host" if part == "other" else part}-bound'


class Bar:
  """Shows how far a pass over a corpus has come; a context manager."""

  def __init__(self, title: str):
    self._title = title
    self._start = self._printed = time.monotonic()
    self._begun: float | None = None  # what was done before
    columns = (TextColumn('{task.description}', markup=False), BarColumn(), TimeRemainingColumn())
    self._progress = rich.progress.Progress(*columns, console=Console(stderr=True), transient=True)
    self._bar = self._progress.add_task(title, total=None)

  def __enter__(self) -> 'Bar':
    with to_the_screen():
      if self._progress.console.is_terminal:
        self._progress.start()
    return self

  @to_the_screen()
  def __exit__(self, *_) -> None:
    if self._progress.console.is_terminal:
      self._progress.stop()

  @property
  def seconds(self) -> float:
    """Since the start."""
    return time.monotonic() - self._start

  @to_the_screen()
  def show(self, text: str, done: float | None) -> None:
    """Updates the bar; `done` is from 0 to 1, or None where the end is not known."""
    if self._begun is None:
      self._begun = done
    if self._progress.console.is_terminal:
      total = None if done is None else 1.0
      self._progress.update(
        self._bar, description=f'{self._title} {text}', completed=done or 0.0, total=total
      )
    elif time.monotonic() - self._printed > _SECONDS:
      self._printed = time.monotonic()
      new = (done or 0.0) - (self._begun or 0.0)
      left = f', {self.seconds * (1 - done) / new:.0f} s left' if done and new > 0 else ''
      print(f'{self._title}: {text}{left}', file=sys.stderr, flush=True)
