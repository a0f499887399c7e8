"""What a run says of itself: metrics.jsonl, TensorBoard events, a progress bar or plain lines."""

import json
import math
import os
import pathlib
import time
from collections.abc import Mapping
from typing import Any

import jax
from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from bertjax.metrics.ledger import verdict


class Writer:
  """Writes scalars to workdir/metrics.jsonl and workdir/tensorboard, from process 0.

  A line is one JSON object, `step` first. Numbers are written so that they read back bit for bit: a
  float32 goes through the float64 of the same value. A value that is not finite is written as NaN
  or Infinity, as Python's json has it. Time and speed aside, an interrupted run and an
  uninterrupted one leave the same file: a resume cuts it back to the restored step.
  """

  def __init__(self, workdir: pathlib.Path | str, resume_step: int):
    """
    Args:
      workdir: of the run.
      resume_step: the step that was restored, 0 in a new run; what came later is removed.
    """
    self._first = jax.process_index() == 0
    if not self._first:
      return
    path = pathlib.Path(workdir, 'metrics.jsonl')
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
      _cut_back(path, resume_step)
    self._file = open(path, 'a', encoding='utf-8')
    self._directory = path.parent / 'tensorboard'
    self._purge_step = resume_step + 1  # TensorBoard forgets it and what follows
    self._events: Any = None

  def write(self, step: int, scalars: Mapping[str, float]) -> None:
    """Appends one line and one set of events; nothing if there are no scalars."""
    if not self._first or not scalars:
      return
    if self._events is None:
      from tensorboardX import SummaryWriter  # imports torch, if there is one: not at start-up

      self._events = SummaryWriter(str(self._directory), purge_step=self._purge_step)
    values = {name: float(value) for name, value in scalars.items()}
    self._file.write(json.dumps({'step': int(step), **values}) + '\n')
    self._file.flush()
    for name, value in values.items():
      self._events.add_scalar(name, value, int(step))
    self._events.flush()

  def close(self) -> None:
    """Closes both."""
    if self._first:
      self._file.close()
      if self._events is not None:
        self._events.close()


def _cut_back(path: pathlib.Path, step: int) -> None:
  """Keeps the lines up to a step; a line torn by a kill, the last one, goes too."""
  kept = []
  for line in path.read_bytes().splitlines(keepends=True):
    if not line.endswith(b'\n'):
      break
    if json.loads(line)['step'] <= step:
      kept.append(line)
  temporary = path.with_name(path.name + '.tmp')
  with open(temporary, 'wb') as file:
    file.writelines(kept)
    file.flush()
    os.fsync(file.fileno())
  temporary.rename(path)


class Progress:
  """A live bar on a terminal, one plain line per log elsewhere, nothing on other processes."""

  def __init__(self, total_steps: int):
    self._total = total_steps
    self._started = time.perf_counter()
    self._base: tuple[int, float] | None = None
    self._first = jax.process_index() == 0
    self._bar: Bar | None = None
    console = Console()
    if self._first and console.is_terminal:
      self._bar = Bar(
        TextColumn('step {task.completed:,.0f}/{task.total:,.0f}'),
        BarColumn(None),
        TextColumn('{task.description}', markup=False),
        console=console,
        expand=True,
      )
      self._task = self._bar.add_task('', total=total_steps)

  def note(self, text: str) -> None:
    """Says what is going on, with the seconds since the start; above the bar if there is one."""
    if not self._first:
      return
    line = f'[{time.perf_counter() - self._started:7.1f} s] {text}'
    if self._bar:
      self._bar.console.print(line, markup=False, highlight=False)
    else:
      print(line, flush=True)

  def update(self, step: int, scalars: Mapping[str, float]) -> None:
    """Shows a logged step.

    Args:
      step: the number of steps taken.
      scalars: loss, tokens_per_second, and accuracies and time/<part> where there are any.
    """
    if not self._first:
      return
    parts = [f'loss {scalars["loss"]:.4f}']
    parts += [f'{k} {v:.3f}' for k, v in scalars.items() if k.endswith('accuracy')]
    parts += [f'{scalars["tokens_per_second"]:,.0f} tokens/s', f'ETA {self._eta(step)}']
    seconds = {k.removeprefix('time/'): v for k, v in scalars.items() if k.startswith('time/')}
    if verdict(seconds) != 'compute-bound':
      parts.append(verdict(seconds))
    text = '  '.join(parts)
    if self._bar:
      self._bar.start()
      self._bar.update(self._task, completed=step, description=text)
    else:
      print(f'step {step:,}/{self._total:,}  {text}', flush=True)

  def close(self) -> None:
    """Leaves the terminal as it was."""
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
    minutes, seconds = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f'{hours}:{minutes:02}:{seconds:02}' if hours else f'{minutes}:{seconds:02}'
