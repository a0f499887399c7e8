"""Accounts of a run's time over all its starts: steps that count, steps redone, waits.

Each start of the run keeps one small file, WORKDIR/starts/NUMBER.json, written anew at every log
line, so that a start that was killed leaves what it had done by then:

began, last   seconds since 1970: its start and its newest line
step, done    steps taken before it, and by its end
seconds       part -> seconds, as the lines of metrics.jsonl have them: time/PART
"""

import json
import os
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from absl import logging

from bertjax.metrics.progress import clock

FOLDER = 'starts'


class Goodput(NamedTuple):
  """Seconds of a run by use, from its first start to its last line."""

  starts: int  # number of starts
  wall: float  # seconds in all
  productive: float  # seconds of computing for steps that the run kept
  redone: float  # seconds of computing for steps that were lost with a start and taken again
  steps_redone: int  # number of steps taken again
  # part -> seconds in which the devices waited: input, checkpoint, eval, compile, other
  stalls: dict[str, float]
  away: float  # seconds before the first line of each start that no part has, and between starts

  def lines(self) -> list[str]:
    """For people."""
    share = 100 * self.productive / self.wall if self.wall else 0.0
    stalls = ', '.join(f'{part} {_said(spent)}' for part, spent in self.stalls.items() if spent)
    times = 'start' if self.starts == 1 else 'starts'
    return [
      f'Goodput: {share:.1f} % of {_said(self.wall)} over {self.starts} {times} went into steps '
      f'that count ({_said(self.productive)})',
      f'  steps redone: {self.steps_redone:,} ({_said(self.redone)}); stalls: {stalls or "none"}; '
      f'starting up and away: {_said(self.away)}',
    ]


class Record:
  """The file of this start; on process 0 only, and without a raise: it is for people."""

  def __init__(self, workdir: pathlib.Path | str, step: int, say: Callable[[str], None]):
    self._path: pathlib.Path | None = None
    self._say, self._seconds = say, {}
    self._row: dict[str, Any] = dict(began=_began(), step=step, done=step)
    if jax.process_index() == 0:
      folder = pathlib.Path(workdir, FOLDER)
      numbers = [int(path.stem) for path in folder.glob('*.json') if path.stem.isdecimal()]
      self._path = folder / f'{max(numbers, default=0) + 1:05}.json'
      self._write()

  def update(self, step: int, scalars: Mapping[str, float]) -> None:
    """Adds a line of the log: its time/PART."""
    for name, spent in scalars.items():
      if name.startswith('time/'):
        part = name.removeprefix('time/')
        self._seconds[part] = self._seconds.get(part, 0.0) + spent
    self._row['done'] = int(step)
    self._write()

  def _write(self) -> None:
    if self._path is None:
      return
    row = dict(self._row, last=time.time(), seconds=self._seconds)
    temporary = self._path.with_suffix('.tmp')
    try:
      self._path.parent.mkdir(parents=True, exist_ok=True)
      temporary.write_text(json.dumps(row, indent=1), encoding='utf-8')
      os.replace(temporary, self._path)
    except OSError as error:
      self._say(f'Warning: {self._path} was not written ({error}): goodput will lack this start')
      self._path = None


def read(workdir: pathlib.Path | str) -> Goodput | None:
  """Returns the goodput of a run so far; None without a start. One whose file is torn is logged."""
  starts = []
  for path in sorted(pathlib.Path(workdir, FOLDER).glob('*.json')):
    try:
      row = json.loads(path.read_bytes())
      total([row])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
      logging.warning('%s is torn: goodput lacks this start (%r)', path, error)
    else:
      starts.append(row)
  return total(starts) if starts else None


def total(starts: Sequence[Mapping[str, Any]]) -> Goodput:
  """Adds up the starts of a run, in their order. Computing time of a start is shared out evenly
  among its steps: those beyond the step from which the run went on later were redone."""
  productive = redone = 0.0
  steps_redone = 0
  stalls: dict[str, float] = {}
  for number, start in enumerate(starts):
    # What a later start went back behind is lost, also over a start that took no step.
    kept = min([start['done'], *(later['step'] for later in starts[number + 1 :])])
    steps = start['done'] - start['step']
    lost = min(steps, start['done'] - kept)
    spent = start['seconds'].get('compute', 0.0)
    share = lost / steps if steps else 0.0
    redone, productive = redone + spent * share, productive + spent * (1 - share)
    steps_redone += lost
    for part, seconds in start['seconds'].items():
      if part != 'compute':
        stalls[part] = stalls.get(part, 0.0) + seconds
  wall = starts[-1]['last'] - starts[0]['began']
  away = max(0.0, wall - productive - redone - sum(stalls.values()))
  return Goodput(len(starts), wall, productive, redone, steps_redone, stalls, away)


def _began() -> float:
  """When this process began, seconds since 1970: imports and compilation count."""
  try:
    ticks = int(pathlib.Path('/proc/self/stat').read_text().rpartition(')')[2].split()[19])
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return booted + ticks / os.sysconf('SC_CLK_TCK')
  except (OSError, AttributeError):  # not Linux
    return time.time()


def _said(seconds: float) -> str:
  return f'{seconds:.1f} s' if seconds < 60 else clock(round(seconds))
