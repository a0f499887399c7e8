"""One process of a run, as a scheduler wants it: a stop before the end is exit status 75.

  python -m bertjax.launch resumable --config=... --workdir=...

The same as `bertjax.main`, which ends with 0 when a signal has stopped it: what starts runs again
(SLURM's batch script, a JobSet, SkyPilot) must know whether there is more to do.
"""

import sys

from bertjax.launch import arguments
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


def finished(workdir: str, total_steps: int | None = None) -> bool:
  """Returns whether a run has a checkpoint of its last step, or of the one it stopped early at;
  without `total_steps` the last step is that of its config.json."""
  from bertjax.checkpoint import reading, resume  # jax: not in the launchers of other machines

  stored = resume.stored(workdir)
  newest = reading.newest_step(workdir)
  if stored is None or newest is None:
    return False
  return newest >= resume.last_step(workdir, total_steps or stored['config']['total_steps'])
