"""What a run leaves of itself: metrics.jsonl and TensorBoard events."""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import jax

from bertjax.errors import writing


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
      resume_step: the step that was restored, 0 in a new run; what came later is removed, and the
        scores of that step: they come after its checkpoint, and are to be written again.
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
    with writing('metrics', self._file.name):
      self._file.write(json.dumps({'step': int(step), **values}) + '\n')
      self._file.flush()
    with writing('TensorBoard events', self._directory):
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
  """Keeps the lines up to a step, but for its scores; a line torn by a kill, the last one, goes."""
  kept = []
  for line in path.read_bytes().splitlines(keepends=True):
    if not line.endswith(b'\n'):
      break
    row = json.loads(line)
    scores = all(name.startswith('eval/') for name in row if name != 'step')
    if row['step'] < step or row['step'] == step and not scores:
      kept.append(line)
  temporary = path.with_name(path.name + '.tmp')
  with writing('metrics', path):
    with open(temporary, 'wb') as file:
      file.writelines(kept)
      file.flush()
      os.fsync(file.fileno())
    temporary.rename(path)
