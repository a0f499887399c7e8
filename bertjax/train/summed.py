"""Phases whose losses are summed in every step, as one phase that the loop cannot tell from others.

Its batch has a batch of each phase, with the phase's name before that of every array
('trtd/token_BT'); its terms and carries are named likewise. The loss is

  sum over phases of factor * the phase's own loss

where each term is divided by its own global weight, as in a step of that phase alone; so its
gradient is the sum of theirs. The rows of a phase are numbered after those of the phase before it:
their draws are their own.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bertjax.data_contracts import TrainingRows
from bertjax.errors import UserError
from bertjax.train.phase import Phase
from bertjax.types import Batch, Context, Objective, Out, Variables


def join(batches: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
  """Phase -> its batch, or its terms, as one."""
  return {f'{phase}/{name}': x for phase, found in batches.items() for name, x in found.items()}


def part(joined: Mapping[str, Any], phase: str) -> dict[str, Any]:
  """Returns the entries of one phase, with the names that they had before `join`."""
  own = f'{phase}/'
  return {name.removeprefix(own): x for name, x in joined.items() if name.startswith(own)}


class Rows(NamedTuple):
  """The rows of several phases, side by side: `TrainingRows`.

  Attributes:
    sources: phase -> its rows.
  """

  sources: Mapping[str, TrainingRows]

  @property
  def ordered(self) -> bool:
    """True if rows of any phase continue those of the batch before."""
    return any(source.ordered for source in self.sources.values())

  @property
  def stats(self) -> dict[str, float]:
    """Figures worth logging about the rows of each phase."""
    return join({name: source.stats for name, source in self.sources.items()})

  def template(self) -> dict[str, np.ndarray]:
    """A row of each."""
    return join({name: source.template() for name, source in self.sources.items()})

  def batch(self, row_n: np.ndarray, shuffle: bool) -> dict[str, np.ndarray]:
    """These rows of each, and what they dropped together."""
    batches = {name: source.batch(row_n, shuffle) for name, source in self.sources.items()}
    dropped_B = np.sum([batch.pop('dropped_B') for batch in batches.values()], 0)
    return dict(join(batches), dropped_B=dropped_B)


def objective(
  objectives: Mapping[str, Objective], factors: Sequence[float], rows: int
) -> Objective:
  """The objective whose loss is the sum of others.

  Args:
    objectives: phase -> its objective; all have the same variables.
    factors: of their losses.
    rows: of a batch of each.
  """
  first = next(iter(objectives))
  each = list(zip(objectives.items(), factors, strict=True))

  def loss(variables: Variables, carry: Any, batch: Batch, ctx: Context) -> Out:
    terms, carries, updates = {}, {}, {}
    for number, ((name, own), factor) in enumerate(each):
      row_B = batch['row_B'] + number * rows
      out = own.loss(variables, carry[name], dict(part(batch, name), row_B=row_B), ctx)
      terms[name] = {k: t._replace(scale=factor * t.scale) for k, t in out.terms.items()}
      carries[name] = out.carry
      if twice := updates.keys() & out.updates.keys():
        raise UserError(
          f'phase {name!r} and one before it both replace {", ".join(sorted(twice))} in a step: '
          'phases that do are not summed, but take turns'
        )
      updates |= out.updates
    return Out(join(terms), carries, updates)

  def enter(variables: Variables) -> Variables:
    for own in objectives.values():
      variables = own.enter(variables) if own.enter is not None else variables
    return variables

  return Objective(
    init=lambda key, batch: objectives[first].init(key, part(batch, first)),
    loss=loss,
    predict=lambda variables, carry, batch: join(
      {k: own.predict(variables, carry[k], part(batch, k)) for k, own in objectives.items()}
    ),
    carry=lambda batch: {k: own.carry(part(batch, k)) for k, own in objectives.items()},
    flops=lambda batch: math.fsum(own.flops(part(batch, k)) for k, own in objectives.items()),
    finish=lambda sums: join({k: own.finish(part(sums, k)) for k, own in objectives.items()}),
    enter=enter if any(own.enter for own in objectives.values()) else None,
    evals=(),
  )


def phase(phases: Sequence[Phase], factors: Sequence[float]) -> Phase:
  """The phase that trains others together; they are judged apart, each by its evaluations.

  Args:
    phases: which have one optimizer and one number of rows (`timeline.STEP_WIDE`).
    factors: of their losses.
  """
  first = phases[0]
  together = objective({p.name: p.objective for p in phases}, factors, first.config.batch_size)
  subject = first.subject._replace(
    objective=together, template=join({p.name: p.template for p in phases})
  )
  return Phase(
    '+'.join(p.name for p in phases),
    subject,
    Rows({p.name: p.examples for p in phases}),
    first.tx,
    first.schedule,
    first.devices,
    first.axes,
    (),
    first.rules,
    parts=tuple(phases),
  )
