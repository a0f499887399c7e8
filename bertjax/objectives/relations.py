"""A student learns how the tokens of a text relate in one layer of its teacher.

A relation of two of the queries, keys and values of a layer is the softmax over the tokens of an
example of their products over sqrt(head size). The loss is the sum over some relations of
KL(teacher || student), the mean over heads and tokens:

  MiniLM (Wang et al. 2020, section 3)    queries and keys, values and values; of the last layers
  MiniLMv2 (Wang et al. 2021, section 3)  queries, keys and values with themselves; their heads side
                                          by side are cut into others, `relation_heads`

Neither width nor number of layers need be the teacher's. What the student's last layer does behind
its attention gets no gradient. The relations are made some columns at a time, and again in the
backward pass.
"""

import functools
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp

from bertjax.errors import UserError
from bertjax.field_types import NONE, Natural
from bertjax.models.layers.contracts import AttendingModel
from bertjax.objectives import teaching
from bertjax.objectives.teaching import KEY
from bertjax.types import Array, Batch, Context, Factory, Objective, Out, Term

Name = Literal['query', 'key', 'value']


class Options(NamedTuple):
  """The fields of `config.objective`.

  Attributes:
    teacher: whose parameters are the collection 'teacher'.
    relations: pairs of query, key and value; each is a term of the loss.
    relation_heads: into so many the heads of both are cut anew; 0: they stay, and the student has
      as many as its teacher.
    layer: of the teacher, from 0; None: the last one. The student's is its last.
  """

  relations: tuple[tuple[Name, Name], ...]
  teacher: Mapping[str, Any] = NONE
  relation_heads: Natural = 0
  layer: Natural | None = None


def make(config) -> Objective:
  """Builds the objective from a run's config, whose teacher has been opened. Raises UserError: see
  `teaching.pair_of`; a student with heads that learn nothing here, or a student and a teacher whose
  relations cannot be compared."""
  given, pair = config.objective, teaching.pair_of(config, AttendingModel)
  check(config)
  student, teacher = pair
  relations = tuple(map(tuple, given.relations))
  layer = teacher.layers - 1 if given.layer is None else given.layer

  def heads(x_LBTNH: Array) -> Array:
    x_BTNH = x_LBTNH[0]
    return x_BTNH.reshape(*x_BTNH.shape[:2], given.relation_heads or x_BTNH.shape[2], -1)

  def projected(model: Any, variables: Any, out: Any, layer: int) -> dict[str, Array]:
    found = model.apply(variables, out, (layer,), method='projections')
    return {name: heads(x_LBTNH) for name, x_LBTNH in found.items()}

  def loss(variables, carry, batch: Batch, ctx: Context) -> Out:
    out, theirs = pair.outputs(variables, batch, ctx, True)
    found = projected(student, teaching.own(variables), out, student.layers - 1)
    wanted = projected(teacher, teaching.frozen(variables), theirs, layer)
    real_BT = (batch['example_BT'] > 0).astype(jnp.float32)
    diverge, terms = functools.partial(teaching.divergence, temperature=1.0), {}
    for one, other in relations:
      pairs = (wanted[one], wanted[other]), (found[one], found[other])
      error_BT = teaching.compared(diverge, *pairs, batch['example_BT'], unseen=-jnp.inf)
      terms[f'{one}_{other}'] = Term.mean(error_BT, real_BT, 1.0)
    return Out(terms, carry)

  def flops(batch: Batch) -> float:
    return pair.flops(batch) + len(relations) * teaching.compared_flops(batch, student, teacher)

  evals = ('loss', 'linear_probe')
  return Objective(pair.init, loss, pair.predict, lambda batch: (), flops, evals=evals)


def check(config) -> None:
  """Refuses models whose relations cannot be compared, and heads of the student that would stay as
  they began."""
  given, student, teacher = config.objective, config.model, config.objective.teacher.model
  teaching.check_layers(config)
  relations = tuple(map(tuple, given.relations))
  if not relations or len(set(relations)) < len(relations):
    raise UserError(
      f'{KEY}.relations: expected pairs of query, key and value, each once, got {relations!r}'
    )
  if given.layer is not None and given.layer >= teacher.layers:
    raise UserError(
      f'{KEY}.layer: expected a layer of the teacher, from 0 to {teacher.layers - 1}, got '
      f'{given.layer}'
    )
  relation_heads = given.relation_heads
  if not relation_heads and student.heads != teacher.heads:
    raise UserError(
      f'{KEY}.teacher has {teacher.heads} heads, the student {student.heads}: expected as many, or '
      f'{KEY}.relation_heads above 0, which divides both widths'
    )
  for name, width in (('student', student.width), ('teacher', teacher.width)):
    if relation_heads and width % relation_heads:
      raise UserError(
        f'{KEY}.relation_heads={relation_heads} must divide the width of the {name}, {width}'
      )


OBJECTIVE = Factory(Options, make, targets=lambda config: ())
