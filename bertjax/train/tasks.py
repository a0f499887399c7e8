"""Labelled tasks that share an encoder and have heads of their own: phases that are drawn.

Each step is of one task (MT-DNN, Liu et al. 2019, section 3.1), whose phase has the objective and
the model that a run on it alone would have, over its part of the parameters: what is shared, and
tasks/NAME with its heads (bertjax/checkpoint/task_heads.py). The heads of the other tasks get a
gradient of zero then, and the optimizer updates them by it: Adam's averages and the weight decay go
on.
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax

from bertjax import models
from bertjax.checkpoint import task_heads
from bertjax.config import timeline
from bertjax.errors import UserError
from bertjax.types import Batch, Context, Objective, Out, Variables


class Task(NamedTuple):
  """One of several.

  Attributes:
    objective: as of a run on it alone.
    heads: names of the parameters that are its own.
  """

  objective: Objective
  heads: tuple[str, ...]


def objectives(phases: Sequence[timeline.PhaseConfig], own: Sequence[Objective]) -> list[Objective]:
  """The objectives of phases that are drawn, over the parameters of all.

  Args:
    phases: of the run.
    own: the objective of each, as of a run on it alone.
  """
  tasks = {}
  for phase, each in zip(phases, own, strict=True):
    tasks[phase.name] = Task(each, models.labels_of(phase.config.model))
  return [objective(tasks, name) for name in tasks]


def objective(tasks: Mapping[str, Task], name: str) -> Objective:
  """The objective of a task over the parameters of all.

  Args:
    tasks: all of the run.
    name: of this one.
  """
  own = tasks[name].objective

  def part(variables: Variables) -> Variables:
    return dict(variables, params=task_heads.of_task(variables['params'], name))

  def loss(variables: Variables, carry: Any, batch: Batch, ctx: Context) -> Out:
    return own.loss(part(variables), carry, batch, ctx)

  def predict(variables: Variables, carry: Any, batch: Batch) -> dict[str, Any]:
    return own.predict(part(variables), carry, batch)

  return own._replace(init=lambda key, batch: _init(tasks, key, batch), loss=loss, predict=predict)


def _init(tasks: Mapping[str, Task], key: jax.Array, batch: Batch) -> Variables:
  """The variables of all tasks, which follow from the seed and, of heads, from the task's name: the
  other tasks of the run and their order change none."""
  shared, heads = {}, {}
  shapes = lambda tree: jax.tree.map(jax.numpy.shape, tree)
  for name, each in tasks.items():
    made = each.objective.init(key, batch)
    own = each.objective.init(jax.random.fold_in(key, zlib.crc32(name.encode())), batch)
    if made.keys() != {'params'} or each.objective.enter is not None:
      raise UserError(
        f'phase {name!r} has more than parameters to be trained, as a student has its teacher: '
        'expected an objective that reads labels, or a run of its own'
      )
    mine = {k: x for k, x in made['params'].items() if k not in each.heads}
    first = {k: shared.get(k, x) for k, x in mine.items()}
    if shapes(mine) != shapes(first):
      raise UserError(
        f'phase {name!r} has other parameters than those before it: tasks share an encoder, '
        'expected one config.model but for its labels'
      )
    shared |= first
    heads[name] = {key: own['params'][key] for key in each.heads}
  return dict(params=task_heads.join(shared, heads))
