"""A student's layers learn from every m-th layer of its teacher: TinyBERT (Jiao et al. 2020,
huawei-noah/Pretrained-Language-Model, TinyBERT/general_distill.py).

Of student layer i, from 0, with m teacher layers for one of the student's:

  scores  the squared error of the attention scores, before the softmax, to those of teacher layer
          i * m + m - 1; a token that is not seen has score 0 in both
  states  the squared error of the states, through one dense layer that training alone has, to the
          teacher's: of what leaves layer i to what leaves that same layer, and of what enters the
          first layers

Each is a sum over layers of the mean over tokens, and over heads and columns, or over the width;
the loss is their sum. The original takes padding into its means; here they are over real tokens,
and over the columns of a row of `config.length`, so that an example has one loss whatever the
length of its batch.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bertjax.errors import UserError
from bertjax.field_types import NONE
from bertjax.models.layers import flops as flops_lib
from bertjax.models.layers.basic import INITS, Dense
from bertjax.models.layers.contracts import AttendingModel
from bertjax.objectives import teaching
from bertjax.objectives.teaching import KEY
from bertjax.types import FIT, Array, Batch, Context, Factory, Objective, Out, Term, Variables


class Options(NamedTuple):
  """The fields of `config.objective`.

  Attributes:
    teacher: whose parameters are the collection 'teacher'.
  """

  teacher: Mapping[str, Any] = NONE


def states(out: Mapping[str, Any]) -> Array:
  """Stacks the input of the first layer and the output of each layer: [L + 1, B, T, D]."""
  return jnp.concatenate([out['embedded_BTD'][None], out['hidden_LBTD']])


def state_error(wanted_LBTD: Array, found_LBTD: Array) -> Array:
  """Returns the mean squared error of each token's states, summed over layers: float32 [B, T]."""
  error_LBTD = wanted_LBTD.astype(jnp.float32) - found_LBTD.astype(jnp.float32)
  return jnp.sum(jnp.mean(jnp.square(error_LBTD), -1), 0)


def score_error(
  teacher: Mapping[str, Array], student: Mapping[str, Array], example_BT: Array, length: int
) -> Array:
  """Returns the sum over layers of the mean squared error of each token's scores, float32 [B, T],
  by query and key [L, B, T, N, H] of both. The mean is over `length` columns; what is missing from
  T to it is padding."""
  error = lambda wanted_BNTS, found_BNTS: jnp.sum(jnp.square(wanted_BNTS - found_BNTS), -1) / length
  of = lambda found, layer: (found['query'][layer], found['key'][layer])
  found = [
    teaching.compared(error, of(teacher, layer), of(student, layer), example_BT, unseen=0.0)
    for layer in range(student['query'].shape[0])
  ]
  return jnp.sum(jnp.stack(found), 0)


def make(config) -> Objective:
  """Builds the objective from a run's config, whose teacher has been opened. Raises UserError: see
  `teaching.pair_of`; a student with heads that learn nothing here, or layers or heads that are not
  those of the teacher."""
  pair = teaching.pair_of(config, AttendingModel)
  check(config)
  student, teacher = pair
  each = teacher.layers // student.layers
  last_of_each = tuple(range(each - 1, teacher.layers, each))
  init_std = INITS[config.model.initializer](config.model.init_std)
  fit = Dense((teacher.width,), ('embed', 'embed_out'), init_std, dtype=config.model.dtype)

  def init(key: Array, batch: Batch) -> Variables:
    variables = pair.init(key, batch)
    made = fit.init(jax.random.fold_in(key, 1), jnp.zeros((1, student.width)))['params']
    return dict(variables, params=dict(variables['params'], **{FIT: made}))

  def loss(variables, carry, batch: Batch, ctx: Context) -> Out:
    own, frozen = teaching.own(variables), teaching.frozen(variables)
    out, theirs = pair.outputs(variables, batch, ctx, True)
    found = student.apply(own, out, tuple(range(student.layers)), method='projections')
    wanted = teacher.apply(frozen, theirs, last_of_each, method='projections')
    fitted_LBTD: Any = fit.apply(dict(params=variables['params'][FIT]), states(out))
    real_BT = (batch['example_BT'] > 0).astype(jnp.float32)
    errors = dict(
      scores=score_error(wanted, found, batch['example_BT'], config.length),
      states=state_error(states(theirs)[::each], fitted_LBTD),
    )
    terms = {name: Term.mean(error_BT, real_BT, 1.0) for name, error_BT in errors.items()}
    return Out(terms, carry)

  def flops(batch: Batch) -> float:
    places = flops_lib.real(batch) * (student.layers + 1)
    fitted = flops_lib.head_flops(places, student.width * teacher.width)
    compared = student.layers * teaching.compared_flops(batch, student, teacher)
    return pair.flops(batch) + compared + fitted

  evals = ('loss', 'linear_probe')
  return Objective(init, loss, pair.predict, lambda batch: (), flops, evals=evals)


def check(config) -> None:
  """Refuses layers and heads that cannot be compared, and heads of the student that would stay as
  they began."""
  student, teacher = config.model, config.objective.teacher.model
  teaching.check_layers(config)
  if teacher.layers % student.layers:
    raise UserError(
      f'{KEY}.teacher has {teacher.layers} layers: expected a multiple of the {student.layers} of '
      'the student, each of which learns from one'
    )
  if teacher.heads != student.heads:
    raise UserError(
      f'{KEY}.teacher has {teacher.heads} heads, the student {student.heads}: expected as many, '
      'whose scores are compared one by one'
    )


OBJECTIVE = Factory(Options, make, targets=lambda config: ())
