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
from bertjax.kernels.cross_entropy import cross_entropy
from bertjax.models.elmo import ELMo
from bertjax.models.layers.basic import padded_rows
from bertjax.models.layers.memory import Start
from bertjax.objectives import lm, model_of, noise_of, require_words
from bertjax.types import Array, Batch, Context, Factory, Objective, Out, Term, Touched

SCORING = 'softmax', 'head/bias'  # of the words that are scored


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

  def candidates(ctx: Context) -> sampled_softmax.Candidates:
    """Returns those of each direction, [2, K] and [2]."""
    keys = (jax.random.fold_in(ctx.key, way) for way in (0, 1))
    drawn = [sampled_softmax.draw(key, sampled, model.scored) for key in keys]
    return jax.tree.map(lambda *each: jnp.stack(each), *drawn)

  def touched(batch: Batch, ctx: Context) -> Touched:
    if not sampled:
      return Touched()
    drawn = candidates(ctx)
    read = batch['target_BT'], batch['target_BU'], drawn.id_K
    id_n = jnp.concatenate([ids.ravel() for ids in read])
    rows, every = padded_rows(len(id_n)), padded_rows(model.scored)
    if rows >= every:
      return Touched()
    row_n = jnp.unique(id_n, size=rows, fill_value=every)
    return Touched(dict.fromkeys(SCORING, row_n), drawn)

  def loss(variables, carry, batch: Batch, ctx: Context) -> Out:
    row_n = ctx.touched.rows.get(SCORING[0])
    net = model if row_n is None else model.clone(outputs=len(row_n))
    noise = noise_of(batch, ctx)
    out = net.apply(variables, batch, lm.before(model, carry, batch, start), noise)
    scores = out['word'], out['out_word']
    targets = batch['target_BT'], batch['target_BU']
    weights = batch['weight_BT'], batch['weight_BU']
    means = lambda values: list(map(Term.mean, values, weights))
    rights = ()
    if ctx.train and sampled:
      hidden_WBPD, target_WBP = jnp.stack([each.hidden_BPE for each in scores]), jnp.stack(targets)
      table_VD, bias_V = scores[0].table_VE, scores[0].bias_V
      drawn = candidates(ctx) if row_n is None else ctx.touched.drawn
      nlls = sampled_softmax.cross_entropy(
        hidden_WBPD, table_VD, bias_V, target_WBP, drawn, model.scored, row_n
      )
    else:
      nlls, rights, _ = zip(*map(cross_entropy, scores, targets), strict=True)
    forwards, backwards = means(nlls)
    both = _sum(forwards, backwards)._replace(scale=scale)
    terms = dict(bilm=both, forwards=forwards, backwards=backwards)
    if rights:
      terms['bilm_accuracy'] = _sum(*means(rights))
    return Out(terms, out['carry'])

  def predict(variables, carry, batch: Batch) -> dict[str, Array]:
    return model.apply(variables, batch, False, method='read')

  finish = functools.partial(lm.finish, term='bilm')
  carry = lambda batch: model.carry(len(batch['token_BT']))
  # In training the softmax costs what its candidates do.
  flops = (model.clone(outputs=sampled) if sampled else model).flops
  evals = ('loss', 'linear_probe')
  return Objective(model.init, loss, predict, carry, flops, finish, evals=evals, touched=touched)


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
