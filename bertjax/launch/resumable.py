"""One process of a run, as a scheduler wants it: a stop before the end is exit status 75.

  python -m bertjax.launch resumable --config=... --workdir=...

The same as `bertjax.main`, which ends with 0 when a signal has stopped it: what starts runs again
(SLURM's batch script, a JobSet, SkyPilot) must know whether there is more to do.
"""

import pathlib
import sys
from collections.abc import Sequence

from bertjax.config import arguments
from bertjax.errors import UserError
from bertjax.launch.processes import FORWARDED, UNFINISHED, Command, run_together

STOPPED = tuple(128 + number for number in FORWARDED)  # before the run could do it in order


def main(argv: list[str]) -> int:
  """Runs `bertjax.main` with these flags; 75 if it was stopped before its last step."""
  if arguments.wants_help(argv, __doc__):
    return 0 if argv else 2
  workdir, steps = arguments.required(argv, 'workdir'), arguments.value(argv, 'config.total_steps')
  status = run_together([Command([sys.executable, '-m', 'bertjax.main', *argv], {}, None, 'run')])
  if status in STOPPED:
    return UNFINISHED
  if status:
    return status
  return 0 if finished(workdir, int(steps) if steps else None) else UNFINISHED


def run(flags: Sequence[str], log: pathlib.Path, name: str) -> int:
  """Runs this module with these flags as a child, its output in a log; returns its exit status.
  Raises UserError if a signal has stopped it."""
  command = [sys.executable, '-m', 'bertjax.launch', 'resumable', *flags]
  status = run_together([Command(command, {}, log, name)], asked := [])
  if status == UNFINISHED or asked:
    raise UserError(f'stopped in {name}; the same command goes on from there')
  return status


def finished(workdir: str, total_steps: int | None = None) -> bool:
  """Returns whether a run has a checkpoint of its last step, or of the one it stopped early at;
  without `total_steps` the last step is that of its config.json."""
  from bertjax.checkpoint import reading, resume  # jax: not in the launchers of other machines

  stored = resume.stored(workdir)
  newest = reading.newest_step(workdir)
  if stored is None or newest is None:
    return False
  return newest >= resume.last_step(workdir, total_steps or stored['config']['total_steps'])
