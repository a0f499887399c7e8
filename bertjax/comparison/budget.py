"""The steps that a budget buys each arm, by the model's own count of FLOPs on its own rows."""

import pathlib
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bertjax.comparison.arms import Arm
from bertjax.errors import UserError
from bertjax.examples import loader, readers
from bertjax.launch import grid
from bertjax.machine import pool
from bertjax.store.reader import Store
from bertjax.tools.bench.parts import own_step, synthetic, timing
from bertjax.tools.preflight import checking

ROWS = 2048  # of a store that are counted at least; fewer differ by percents from its mean
MADE_UP = 4  # batches of made-up text that are counted
EVALS = 10  # evaluations of a run
KINDS = ('flops', 'tokens', 'seconds')


class Budget(NamedTuple):
  """The budget of every run."""

  kind: str  # of KINDS
  amount: float

  def steps(self, cost: 'Cost') -> int:
    """Returns the steps that it buys. Raises UserError if these have no room for evaluations."""
    steps = int(self.amount / getattr(cost, self.kind))
    if steps < EVALS:
      least = EVALS * getattr(cost, self.kind)
      raise UserError(
        f'--{self.kind}={self.amount:g} buys {steps} steps of {cost.name}, fewer than the {EVALS} '
        f'evaluations of a run: expected at least {least:.3g}, a smaller --size, or a smaller '
        'batch (--set=batch_size=N)'
      )
    return steps


class Cost(NamedTuple):
  """The cost of an arm, a step by the mean over its phases."""

  name: str
  parameters: int
  state_bytes: int  # parameters and optimizer
  flops: float  # of a step, see `types.Objective.flops`
  tokens: float  # real ones that a step reads
  seconds: float | None  # of a step on this machine; None if it was not timed
  step_bytes: int | None = None  # of the compiled step on this machine; None if it was not compiled


def counted(arm: Arm, ids: int, store: Store | None, plans: str) -> Cost:
  """Counts an arm on the first batches of its store, and compiles its longest phase; None: counts
  on made-up text, whose rows are less full. `plans` is where plans go if the store cannot take
  them."""
  found: list[tuple[float, float, float]] = []
  phases = _phases(arm, ids)
  for phase in phases:
    parts = own_step.phases_of(phase.config) or {'': phase.config}
    each = [_count(part, store, plans) for part in parts.values()]
    found.append((float(phase.steps or 1), *map(sum, zip(*each, strict=True))))  # pyright: ignore
  steps_n, flops_n, tokens_n = np.array(found).T
  longest = phases[int(np.argmax(steps_n))].config
  batch = checking.batch_of(longest)
  sizes = own_step.footprint(longest, batch)
  flops = float(np.average(flops_n, weights=steps_n))
  tokens = float(np.average(tokens_n, weights=steps_n))
  memory = own_step.memory(longest, batch) if store else None
  return Cost(arm.name, sizes['parameters'], sizes['state_bytes'], flops, tokens, None, memory)


def timed(arm: Arm, ids: int, cost: Cost) -> Cost:
  """Runs steps of each phase of an arm that was counted: returns its cost with seconds."""
  phases = _phases(arm, ids)
  seconds = [pool.apart(_seconds, phase.config) for phase in phases]
  weights = [phase.steps or 1 for phase in phases]
  return cost._replace(seconds=float(np.average(seconds, weights=weights)))


def _phases(arm: Arm, ids: int) -> Sequence[Any]:
  config = arm.config.copy_and_resolve_references()
  config.model.vocab_size = config.model.vocab_size or ids
  return checking.phases(config, None, None)


def _count(config: Any, store: Store | None, plans: str) -> tuple[float, float]:
  """Returns FLOPs and real tokens of a step of one phase."""
  few = config.copy_and_resolve_references()
  if store is None:
    few.batch_size, count = min(config.batch_size, checking.SAMPLE), MADE_UP
    rows = synthetic.examples_of(few)
  else:
    count = -(-ROWS // few.batch_size)
    rows, _ = readers.of(few.data).rows(few, store, plans)
  batches, objective = loader.Batches(rows, few.batch_size), own_step.objective_of(few)
  found = [batches.at(index) for index in range(count)]
  scale = config.batch_size / few.batch_size / count
  flops = sum(float(objective.flops(batch)) for batch, _ in found)
  return scale * flops, scale * sum(counts['real'] for _, counts in found)


def _seconds(config: Any) -> float:
  """Returns the seconds of a step, which are the same however full its rows are: the median of
  three, after one that is not timed; of fewer rows, taken as often."""
  few = config.copy_and_resolve_references()
  few.batch_size = min(config.batch_size, checking.SAMPLE)
  step = own_step.make_step(few, checking.batch_of(few))
  seconds = statistics.median(timing.alternate({'': step}, 3, 1)[''])
  return seconds * config.batch_size / few.batch_size


def point_of(arm: Arm, steps: int, store: pathlib.Path | str) -> dict[str, str]:
  """Returns the keys of all runs of an arm besides its recipe's: store, length and looks. The
  warm-up keeps its share of the steps."""
  every = max(steps // EVALS, 1)
  found = dict(total_steps=steps, eval_steps=every, checkpoint_steps=every, keep_checkpoints=1)
  found |= {'log_steps': max(steps // 100, 1), 'data.store': store, 'data.heldout': ''}
  before, after = arm.config, grid.changed_by(arm.config, dict(total_steps=str(steps)), '--flops')
  if warmup := before.optimizer.schedule.get('warmup_steps', 0):
    share = warmup / before.total_steps
    if abs(after.optimizer.schedule.warmup_steps - share * steps) > 1:  # it is no reference
      found['optimizer.schedule.warmup_steps'] = round(share * steps)
  return {key: str(value) for key, value in found.items()}
