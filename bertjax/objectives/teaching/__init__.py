"""A student and its teacher: what the objectives that learn from another model have in common."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bertjax import models
from bertjax.errors import UserError
from bertjax.models.layers import flops as flops_lib
from bertjax.models.layers.contracts import Model
from bertjax.objectives import check_heads, model_of, noise_of
from bertjax.types import FIT, TEACHER, Array, Batch, Context, Variables

KEY = 'config.objective'
CHUNK = 1 << 25  # scores of a model at a time, where every token has some


class Pair(NamedTuple):
  """Two models; the parameters of the teacher are the collection TEACHER."""

  student: Any  # the model of the run
  teacher: Any  # computes in the dtype of the student, without dropout and without gradient

  def init(self, key: Array, batch: Batch) -> Variables:
    """Returns the variables of both. Raises UserError if the teacher reads ids of tokens that the
    student's rows have not."""
    own = self.student.init(key, batch)
    extra = [name for name, _ in getattr(self.teacher, 'extra', ())]
    if lacking := [name for name in extra if f'{name}_BT' not in batch]:
      raise UserError(
        f"{KEY}.teacher reads a {' and a '.join(lacking)} of each token, which this run's rows "
        'have not: expected a teacher without, or a plan and a store that know them'
      )
    return dict(own, **{TEACHER: self.teacher.init(key, batch)['params']})

  def outputs(self, variables: Variables, batch: Batch, ctx: Context, hidden: bool):
    """Returns the outputs of both on a batch in a step; with hidden both return every layer's
    output."""
    learned = self.student.apply(own(variables), batch, noise_of(batch, ctx), hidden)
    return learned, self.teacher.apply(frozen(variables), batch, None, hidden)

  def predict(self, variables: Variables, carry: Any, batch: Batch):
    """Returns the student's outputs for a batch, as `Objective.predict`."""
    return self.student.apply(own(variables), batch)

  def flops(self, batch: Batch) -> float:
    """FLOPs of both; a third of a model's is the forward pass, all that a teacher does."""
    return self.student.flops(batch) + self.teacher.flops(batch) / 3


def own(variables: Variables) -> Variables:
  """Returns the student's variables."""
  params = {name: tree for name, tree in variables['params'].items() if name != FIT}
  return dict({k: v for k, v in variables.items() if k != TEACHER}, params=params)


def frozen(variables: Variables) -> Variables:
  """Returns the teacher's variables, which have no gradient."""
  return jax.lax.stop_gradient(dict(params=variables[TEACHER]))


def pair_of(config: Any, kind: type[Model]) -> Pair:
  """Returns the models of a run whose teacher has been opened; both must keep the contract `kind`.
  Raises UserError as `model_of` does, and without a teacher, for one of another kind, or one whose
  rows are shorter."""
  student = model_of(config.model, config.objective.name, kind)
  given = config.objective.teacher.model
  if not given:
    raise UserError(
      f'{KEY}.teacher has no model: it is that of {KEY}.teacher.source, which a run opens first'
    )
  given = given.copy_and_resolve_references()
  if 'dtype' in given:
    given.dtype = config.model.dtype
  teacher = models.build(given)
  if not isinstance(teacher, kind):
    raise UserError(
      f'{KEY}.teacher: expected a model of the kind {kind.__name__} '
      f'(bertjax/models/layers/contracts.py), as BERT is, got {given.name!r}'
    )
  what = f'config.length, of the rows of {KEY}.teacher,'
  teacher.require_room(config.length, what, 'name another teacher')
  return Pair(student, teacher)


def scores(one_BTNH: Array, other_BSNH: Array, sees_BTS: Array, unseen: float) -> Array:
  """Products over sqrt(H), float32 [B, N, T, S]; `unseen` where t does not see s."""
  product_BNTS = jnp.einsum(
    'BTNH,BSNH->BNTS', one_BTNH, other_BSNH, preferred_element_type=jnp.float32
  )
  scaled_BNTS = product_BNTS / math.sqrt(one_BTNH.shape[-1])
  return jnp.where(sees_BTS[:, None], scaled_BNTS, unseen)


def compared(
  error: Callable[[Array, Array], Array],
  teacher: tuple[Array, Array],
  student: tuple[Array, Array],
  example_BT: Array,
  unseen: float,
) -> Array:
  """Returns an error, (scores of the teacher, of the student) [B, N, T, S] -> [B, N, T], of each
  token, the mean over heads: float32 [B, T]. Both give two of query, key and value, [B, T, N, H]; N
  must agree. Equal ids of example_BT see each other; padding sees itself, and is for others to
  leave out."""
  (wanted_BTNH, wanted_BSNH), (found_BTNH, found_BSNH) = teacher, student

  def part(wanted_BTNH: Array, found_BTNH: Array, own_BT: Array) -> Array:
    sees_BTS = own_BT[:, :, None] == example_BT[:, None]
    wanted_BNTS = scores(wanted_BTNH, wanted_BSNH, sees_BTS, unseen)
    return jnp.mean(error(wanted_BNTS, scores(found_BTNH, found_BSNH, sees_BTS, unseen)), 1)

  each = wanted_BTNH.shape[2] * example_BT.shape[1]
  return by_columns(part, (wanted_BTNH, found_BTNH, example_BT), each)


def compared_flops(batch: Batch, student: Any, teacher: Any) -> float:
  """FLOPs of the scores of a layer of two models; the teacher's have no backward pass."""
  return flops_lib.attended_pairs(batch['example_BT']) * (6.0 * student.width + 2.0 * teacher.width)


def check_vocabulary(config: Any) -> None:
  """Refuses a teacher with another number of ids than the student."""
  theirs, ours = config.objective.teacher.model.vocab_size, config.model.vocab_size
  if theirs != ours:
    raise UserError(f'{KEY}.teacher has {theirs} ids, the student {ours}: expected one vocabulary')


def check_layers(config: Any) -> None:
  """Refuses models whose layers cannot be compared, where the objective teaches these alone: heads
  of the student, other ids, attention that layers share or that does not see whole examples."""
  check_heads(config)
  check_vocabulary(config)
  given = {'config.model': config.model, f'{KEY}.teacher.model': config.objective.teacher.model}
  for name, model in given.items():
    for key, expected in (('sharing', 'none'), ('attend', 'example')):
      if key in model and model[key] != expected:
        raise UserError(
          'what is compared is the attention of whole examples in layers of their own: expected '
          f'{name}.{key}={expected!r}, got {model[key]!r}'
        )


def divergence(teacher_V: Array, student_V: Array, temperature: float) -> Array:
  """KL(teacher || student) of float32 logits [..., V] at a temperature, summed over V; -inf in both
  is a class that there is not."""
  wanted_V = jax.nn.log_softmax(teacher_V / temperature)
  found_V = jax.nn.log_softmax(student_V / temperature)
  part_V = jnp.where(wanted_V > -jnp.inf, jnp.exp(wanted_V) * (wanted_V - found_V), 0.0)
  return jnp.sum(part_V, -1)


def by_columns(function: Callable[..., Array], arrays: Any, scores: int) -> Array:
  """Returns a function of arrays [B, T, ...], which makes so many scores of each token, [B, T]. It
  is computed some columns at a time: what it makes on the way are the largest arrays of a step, and
  the backward pass makes them again."""
  rows, columns = arrays[0].shape[:2]
  most = max(1, CHUNK // (rows * scores))
  size = max(n for n in range(1, columns + 1) if columns % n == 0 and n <= most)
  cut = lambda x: jnp.moveaxis(x.reshape(rows, columns // size, size, *x.shape[2:]), 1, 0)
  found = jax.lax.map(jax.checkpoint(lambda part: function(*part)), jax.tree.map(cut, arrays))
  return jnp.moveaxis(found, 0, 1).reshape(rows, columns)
