"""Phases that are trained as one: every step sums the losses of all, or is of one that is drawn.

Of `config.phases` with `summed` every step takes a batch of each and sums their losses, each times
that number. Of labelled tasks with `drawn` one with n examples comes with a probability
proportional to n^(1/T), where T is `config.temperature`: 1 is by size, and the larger T the more
alike they are. Which one a step is of follows from the seed and the step alone, so hosts agree and
a longer run begins alike.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bertjax import counter_rng
from bertjax.errors import UserError
from bertjax.field_types import Natural, Positive
from bertjax.options import convert

# Factors of losses, and numbers of examples; 0: as many as there are.
KINDS = dict(summed=Positive, drawn=Natural)
# Keys of which a step has one value, whatever it is of; rows of all that it sums are as many.
STEP_WIDE = dict(
  summed=('batch_size', 'microbatches', 'reduce_dtype', 'optimizer', 'seed'),
  drawn=('microbatches', 'reduce_dtype', 'optimizer', 'seed'),
)


class Draws(NamedTuple):
  """The draw of one of several phases for each step."""

  examples: tuple[int, ...]  # labelled examples of each phase
  temperature: float  # T
  seed: int  # of the run

  def steps(self, total: int) -> np.ndarray:
    """(number of it, number of its batch) of each of the first steps, int64 [total, 2]."""
    size_n = np.array(self.examples, np.float64)
    share_n = np.cumsum((size_n / size_n.max()) ** (1 / self.temperature))
    bits = counter_rng.fold(counter_rng.root(self.seed, 'phase of a step'), np.arange(total))
    drawn = np.searchsorted(share_n, counter_rng.uniform(bits) * share_n[-1], side='right')
    found = np.zeros((total, 2), np.int64)
    for phase in range(len(self.examples)):
      own = np.flatnonzero(drawn == phase)
      found[own, 0], found[own, 1] = phase, np.arange(len(own))
    return found


class Combined(NamedTuple):
  """Phases that are trained as one."""

  parts: tuple[Any, ...]  # the phases (timeline.PhaseConfig)
  factors: tuple[float, ...]  # of their losses
  draws: Draws | None = None  # by what each step is of one of them; None: each is of all


def make(kind: str, config: Any, phases: Sequence[Any], weights: Sequence[float]) -> Combined:
  """Combines phases, each of which says `kind` with a weight. Raises UserError if they are drawn,
  and not of labelled examples of one vocabulary."""
  if kind == 'summed':
    return Combined(tuple(phases), tuple(weights))
  for phase in phases:
    if (reader := phase.config.data.reader) != 'labelled':
      raise UserError(
        f'config.phases.{phase.name}.drawn is for labelled examples: expected config.data.reader='
        f"'labelled', got {reader!r}; others take turns"
      )
    if phase.config.data.vocab != config.data.vocab:
      raise UserError(
        f'config.phases.{phase.name}.data.vocab={phase.config.data.vocab}: the encoder that tasks '
        'share has one vocabulary; set config.data.vocab'
      )
  temperature = convert(Positive, config.temperature, 'config.temperature')
  draws = Draws(tuple(map(int, weights)), temperature, config.seed)
  return Combined(tuple(phases), (1.0,) * len(phases), draws)
