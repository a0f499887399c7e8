"""Language modelling in both directions: ELMo's loss, the mean of both (allenai/bilm-tf).

bilm/training.py: the mean over the tokens of a batch, half of it from each direction; its gradient
is that of the loss times the columns of a row. The state goes on from batch to batch and is never
cleared (`memory='zeros'`).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp

from bertjax.kernels.cross_entropy import cross_entropy
from bertjax.kernels.dropout import noise_from_key
from bertjax.models.elmo import ELMo
from bertjax.models.layers.memory import Start
from bertjax.objectives import lm, model_of
from bertjax.types import Array, Batch, Context, Factory, Objective, Out, Term, means


class Options(NamedTuple):
  """The fields of `config.objective`.

  Attributes:
    times_length: the loss that is trained is `config.length` times the mean.
    memory: 'zeros': states are never cleared; 'empty': they are where a column begins anew.
  """

  times_length: bool
  memory: Start


def make(config) -> Objective:
  """Builds the objective from a run's config. Raises UserError: see `model_of`."""
  model = model_of(config.model, config.objective.name, ELMo)
  scale = float(config.length if config.objective.times_length else 1)
  start = config.objective.memory

  def loss(variables, carry, batch: Batch, ctx: Context) -> Out:
    noise = noise_from_key(ctx.key, batch['row_B']) if ctx.train else None
    out = model.apply(variables, batch, lm.before(model, carry, batch, start), noise)
    forwards = _sums(out['word'], batch['target_BT'], batch['weight_BT'])
    backwards = _sums(out['out_word'], batch['target_BU'], batch['weight_BU'])
    (total, right, weight), (other, other_right, other_weight) = forwards, backwards
    both = weight + other_weight
    terms = dict(
      bilm=Term(total + other, both, scale=scale),
      forwards=Term(total, weight),
      backwards=Term(other, other_weight),
      bilm_accuracy=Term(right + other_right, both),
    )
    return Out(terms, out['carry'])

  def predict(variables, carry, batch: Batch, hidden: bool = False) -> dict[str, Array]:
    del carry
    return model.apply(variables, batch, hidden, method='read')

  def finish(sums: Mapping[str, tuple[Any, Any]]) -> dict[str, float]:
    found = means(sums)
    return found | (lm.in_unit(found['bilm'], 'word') if 'bilm' in found else {})

  carry = lambda batch: model.carry(len(batch['token_BT']))
  return Objective(model.init, loss, predict, carry, model.flops, finish)


def _sums(scores: Any, target_BT: Array, weight_BT: Array) -> tuple[Array, Array, Array]:
  """Losses, hits and weights of a direction."""
  nll_BT, right_BT, _ = cross_entropy(scores, target_BT)
  return jnp.sum(weight_BT * nll_BT), jnp.sum(weight_BT * right_BT), jnp.sum(weight_BT)


OBJECTIVE = Factory(Options, make)
