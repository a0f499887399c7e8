"""Several objectives as one: the sum of their losses in a step, or of each step another one.

Each has a name. A batch has, under the names of those that its step trains, a batch of each
('trtd/token_BT'); terms and carries are named likewise. Where all are there the loss is

  sum over them of factor * the objective's own loss

in which each term is divided by its own global weight, as in a step of that objective alone; so the
gradient is the sum of theirs. The rows of one are numbered after those of the one before it: their
draws are their own. Where one is there (MT-DNN, Liu et al. 2019, section 3.1), the step is one of
its own, and the heads of the others get a gradient of zero: the optimizer updates them by it,
Adam's averages and the weight decay go on.
"""

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from bertjax.errors import UserError
from bertjax.objectives import scaled
from bertjax.objectives.combine import task_heads
from bertjax.types import Batch, Context, Objective, Out, Touched, Variables


def join(batches: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
  """Name -> batch, or terms, as one."""
  return {f'{name}/{key}': x for name, found in batches.items() for key, x in found.items()}


def part(joined: Mapping[str, Any], name: str) -> dict[str, Any]:
  """Returns the entries of one, with the keys that they had before `join`; {} if it has none."""
  own = f'{name}/'
  return {key.removeprefix(own): x for key, x in joined.items() if key.startswith(own)}


def together(
  objectives: Mapping[str, Objective], factors: Sequence[float], rows: Mapping[str, int]
) -> Objective:
  """Returns the objective of batches that have a batch of some of these, which share variables:
  each with the factor of its loss and the rows of its global batch."""
  first = next(iter(objectives))

  def of_each(batch: Batch, call: Any) -> dict[str, Any]:
    found = {name: part(batch, name) for name in objectives}
    return {name: call(objectives[name], name, own) for name, own in found.items() if own}

  def loss(variables: Variables, carry: Any, batch: Batch, ctx: Context) -> Out:
    terms, carries, updates, before = {}, dict(carry), {}, 0
    for (name, own), factor in zip(objectives.items(), factors, strict=True):
      if not (found := part(batch, name)):
        continue
      numbered = dict(found, row_B=batch['row_B'] + before)
      out = own.loss(variables, carry[name], numbered, ctx)
      before += rows[name]
      terms[name] = scaled(out.terms, factor)
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
      of_each(batch, lambda own, name, found: own.predict(variables, carry[name], found))
    ),
    carry=lambda batch: of_each(batch, lambda own, name, found: own.carry(found)),
    flops=lambda batch: math.fsum(
      of_each(batch, lambda own, name, found: own.flops(found)).values()
    ),
    finish=lambda sums: join(of_each(sums, lambda own, name, found: own.finish(found))),
    enter=enter if any(own.enter for own in objectives.values()) else None,
    evals=(),
  )


def over_all(
  objectives: Mapping[str, Objective], heads: Mapping[str, Sequence[str]]
) -> dict[str, Objective]:
  """Returns each objective over the variables of all: an encoder that they share, and tasks/NAME
  with the parameters that are its own, `heads` (task_heads.py)."""

  def view(name: str, own: Objective) -> Objective:
    of_task = lambda v: dict(v, params=task_heads.of_task(v['params'], name))
    return own._replace(
      init=lambda key, batch: _init(objectives, heads, key, batch),
      loss=lambda variables, carry, batch, ctx: own.loss(of_task(variables), carry, batch, ctx),
      predict=lambda variables, carry, batch: own.predict(of_task(variables), carry, batch),
      touched=lambda batch, ctx: Touched(),
    )

  return {name: view(name, own) for name, own in objectives.items()}


def _init(
  objectives: Mapping[str, Objective],
  heads: Mapping[str, Sequence[str]],
  key: jax.Array,
  batch: Batch,
) -> Variables:
  """Returns the variables of all, which follow from the seed and, of heads, from the name: the
  others and their order change none."""
  shared, found = {}, {}
  shapes = lambda tree: jax.tree.map(jax.numpy.shape, tree)
  for name, each in objectives.items():
    made = each.init(key, batch)
    own = each.init(jax.random.fold_in(key, zlib.crc32(name.encode())), batch)
    if made.keys() != {'params'} or each.enter is not None:
      raise UserError(
        f'phase {name!r} has more than parameters to be trained, as a student has its teacher: '
        'expected an objective that reads labels, or a run of its own'
      )
    mine = {k: x for k, x in made['params'].items() if k not in heads[name]}
    first = {k: shared.get(k, x) for k, x in mine.items()}
    if shapes(mine) != shapes(first):
      raise UserError(
        f'phase {name!r} has other parameters than those before it: tasks share an encoder, '
        'expected one config.model but for its labels'
      )
    shared |= first
    found[name] = {key: own['params'][key] for key in heads[name]}
  return dict(params=task_heads.join(shared, found))
