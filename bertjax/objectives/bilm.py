"""Language modelling in both directions: ELMo's loss, the mean of both (allenai/bilm-tf).

bilm/training.py: the mean over the tokens of a batch, half of it from each direction; its gradient
is that of the loss times the columns of a row. The state goes on from batch to batch and is never
cleared (`memory='zeros'`). In training the softmax may be over some words in place of all; each
direction has candidates of its own, the same in all rows.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bertjax.errors import UserError
from bertjax.field_types import Natural
from bertjax.kernels import sampled_softmax
from bertjax.kernels.cross_entropy import Scores, cross_entropy
from bertjax.kernels.dropout import noise_from_key
from bertjax.kernels.sampled_softmax import Candidates
from bertjax.models.elmo import ELMo
from bertjax.models.layers.memory import Start
from bertjax.objectives import lm, model_of, require_words
from bertjax.types import Array, Batch, Context, Factory, Objective, Out, Term


class Options(NamedTuple):
  """The fields of `config.objective`.

  Attributes:
    times_length: the loss that is trained is `config.length` times the mean.
    sampled: candidates of a step's softmax in training, K; 0: all words are scored.
    memory: 'zeros': states are never cleared; 'empty': they are where a column begins anew.
  """

  times_length: bool
  memory: Start
  sampled: Natural = 0


def make(config) -> Objective:
  """Builds the objective from a run's config. Raises UserError: see `model_of`,
  `require_words` and `_check`."""
  model, sampled = model_of(config.model, config.objective.name, ELMo), config.objective.sampled
  require_words(config.model)
  _check(config, model.scored)
  scale = float(config.length if config.objective.times_length else 1)
  start = config.objective.memory

  def loss(variables, carry, batch: Batch, ctx: Context) -> Out:
    noise = noise_from_key(ctx.key, batch['row_B']) if ctx.train else None
    out = model.apply(variables, batch, lm.before(model, carry, batch, start), noise)
    found = []
    for way, (prefix, letter) in enumerate((('', 'T'), ('out_', 'U'))):
      drawn = None
      if ctx.train and sampled:
        drawn = sampled_softmax.draw(jax.random.fold_in(ctx.key, way), sampled, model.scored)
      target_BT, weight_BT = batch[f'target_B{letter}'], batch[f'weight_B{letter}']
      found.append(_terms(out[f'{prefix}word'], target_BT, weight_BT, drawn))
    (forwards, right), (backwards, other_right) = found
    both = _sum(forwards, backwards)._replace(scale=scale)
    terms = dict(bilm=both, forwards=forwards, backwards=backwards)
    if right is not None:
      terms['bilm_accuracy'] = _sum(right, other_right)
    return Out(terms, out['carry'])

  def predict(variables, carry, batch: Batch, hidden: bool = False) -> dict[str, Array]:
    return model.apply(variables, batch, hidden, method='read')

  finish = functools.partial(lm.finish, term='bilm')
  carry = lambda batch: model.carry(len(batch['token_BT']))
  # In training the softmax costs what its candidates do.
  flops = (model.clone(outputs=sampled) if sampled else model).flops
  return Objective(model.init, loss, predict, carry, flops, finish)


def _terms(
  scores: Scores, target_BT: Array, weight_BT: Array, drawn: Candidates | None
) -> tuple[Term, Term | None]:
  """Loss and accuracy of a direction; the latter where all words are scored."""
  weight = jnp.sum(weight_BT)
  if drawn is not None:
    hidden_BTD, table_VD, bias_V, words = scores
    nll_BT = sampled_softmax.cross_entropy(hidden_BTD, table_VD, bias_V, target_BT, drawn, words)
    return Term(jnp.sum(weight_BT * nll_BT), weight), None
  nll_BT, right_BT, _ = cross_entropy(scores, target_BT)
  return Term(jnp.sum(weight_BT * nll_BT), weight), Term(jnp.sum(weight_BT * right_BT), weight)


def _sum(one: Term, two: Term) -> Term:
  return Term(one.total + two.total, one.weight + two.weight)


def _check(config: Any, scored: int) -> None:
  """Refuses words and characters other than those of the batches, too many candidates."""
  for field, name in (('outputs', 'words'), ('characters', 'characters')):
    if config.data.mask[name] != config.model[field]:
      raise UserError(
        f'config.model.{field} and config.data.mask.{name} are one thing: got '
        f'{config.model[field]} and {config.data.mask[name]}, expected one number'
      )
  sampled = config.objective.sampled
  if sampled and 0 < scored < sampled:
    raise UserError(
      f'config.objective.sampled: got {sampled} candidates of {scored} words: expected as many at '
      'most, or 0 for all'
    )


OBJECTIVE = Factory(Options, make, targets=lambda config: ('both_ways',))
