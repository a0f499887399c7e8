"""Length of a run by `config.minutes`: a new run times its own steps, once.

config.json keeps them among the facts, and a resume takes them from there: a run has one schedule.
"""

import math
import statistics
import time
from collections.abc import Callable

import jax

from bertjax.errors import amount
from bertjax.machine import hosts
from bertjax.metrics.progress import passing
from bertjax.train import first_state, setup
from bertjax.train.phase import Phase

STEPS = 30
WARMUP = 3


def measure(run: setup.Run, say: Callable[[str], None]) -> int:
  """Returns the number of steps that fit into `config.minutes` on these devices. The run cannot be
  used afterwards: its batches have begun."""
  minutes = run.config.minutes
  say(f'Timing {STEPS} steps, to see how many fit into {amount(minutes, "minutes")}')
  share = lambda steps: steps / sum(run.timeline.lengths)
  mine = sum(
    share(steps) * _seconds(run, phase)
    for phase, steps in zip(run.phases, run.timeline.lengths, strict=True)
  )
  slowest = max(map(float, hosts.gather('pace', repr(mine))))
  steps = max(round(60 * minutes / slowest), 1)
  say(f'{1000 * slowest:.3g} ms a step: config.total_steps={steps}')
  return steps


def _seconds(run: setup.Run, phase: Phase) -> float:
  """Returns the median time of a step of a phase, its batch included, on a state that is thrown
  away."""
  state = first_state.seeded_state(run)
  phase.compile(run.abstract)
  hosts.barrier(f'pace/{phase.name}', math.inf)
  took = []
  for index in passing('Timing', range(WARMUP + STEPS), WARMUP + STEPS):
    begin = time.perf_counter()
    state, metrics = phase.train(state, phase.next_batch(index)[0])
    jax.block_until_ready((state, metrics))
    took.append(time.perf_counter() - begin)
  return statistics.median(took[WARMUP:])
