"""Length of a run by `config.minutes`: a new run times its own steps, once.

What they say is in config.json, from which a resume takes it: so all of a run has one schedule.
"""

import math
import statistics
import time
from collections.abc import Callable, Collection
from typing import Any

import jax

from bertjax.checkpoint import resume
from bertjax.errors import UserError
from bertjax.machine import hosts
from bertjax.train import first_state, setup

STEPS = 30
WARMUP = 3


def check(config: Any, given: Collection[str]) -> list[str]:
  """Lets total_steps stand where the command line gives it.

  Args:
    config: changed in place.
    given: keys of the config that the command line gives.

  Returns:
    What was done, a line each.

  Raises:
    UserError: phases, whose steps differ, or epochs too.
  """
  if not config.minutes:
    return []
  if 'total_steps' in given:
    said = f'config.total_steps={config.total_steps}, as given, and not {config.minutes:g} minutes'
    config.minutes = 0.0
    return [said]
  if config.phases or config.epochs:
    key = 'phases' if config.phases else 'epochs'
    raise UserError(
      f'config.minutes={config.minutes:g} sets the steps of a run whose steps are all alike, and '
      f'there are config.{key}: leave it at 0 and set config.total_steps'
    )
  return []


def recall(config: Any, workdir: str) -> list[str]:
  """Sets total_steps of a run that has begun; returns what was done, a line each."""
  stored = resume.stored(workdir) if config.minutes else None
  if stored is None:
    return []
  config.total_steps = stored['config']['total_steps']
  return [f'config.total_steps={config.total_steps}, as this run found when it began']


def measure(config: Any, run: setup.Run, say: Callable[[str], None]) -> int:
  """Returns the number of steps that fit into `config.minutes` on these devices.

  Args:
    config, run: a run that begins. It cannot be used afterwards: its batches have begun.
    say: function that shows a line.
  """
  say(f'Timing {STEPS} steps, to see how many {config.minutes:g} minutes have room for')
  slowest = max(map(float, hosts.gather('pace', repr(_seconds(config, run)))))
  steps = max(round(60 * config.minutes / slowest), 1)
  say(f'{1000 * slowest:.3g} ms a step: config.total_steps={steps}')
  return steps


def _seconds(config: Any, run: setup.Run) -> float:
  """The median time of a step, its batch included, on a state that is thrown away."""
  phase, state = run.phases[0], first_state.seeded_state(config, run)
  phase.compile(run.abstract)
  hosts.barrier('pace/compiled', math.inf)
  took = []
  for index in range(WARMUP + STEPS):
    begin = time.perf_counter()
    state, metrics = phase.train(state, phase.next_batch(index)[0])
    jax.block_until_ready((state, metrics))
    took.append(time.perf_counter() - begin)
  return statistics.median(took[WARMUP:])
