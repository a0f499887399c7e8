"""One of the parts of a row is right: a softmax over a number for each, read off its first token
(Devlin et al. 2019, section 4.4).

The loss is the mean cross-entropy of the rows, as of transformers' `...ForMultipleChoice`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bertjax.errors import UserError
from bertjax.kernels.dropout import Noise, noise_from_key
from bertjax.models.layers.contracts import TargetModel
from bertjax.objectives import model_of
from bertjax.types import Array, Batch, Context, Factory, Objective, Out, Term

RIGHT = 'right'


class Options(NamedTuple):
  """The objective has no fields."""


def make(config) -> Objective:
  """Builds the objective from a run's config: `config.model.labels` is (('right', 1),).

  Raises:
    UserError: see `model_of`; a model with a head for words, or with other labels.
  """
  model = model_of(config, TargetModel)
  labels = tuple(config.model.labels) if 'labels' in config.model else ()
  if labels != ((RIGHT, 1),):
    raise UserError(
      "the objective 'choose' has one number for each choice: expected config.model.labels="
      f'(({RIGHT!r}, 1),), got {labels!r}'
    )
  if config.model.words:
    raise UserError(
      "the objective 'choose' has no words to score: expected config.model.words=False, got True"
    )

  def logits(variables, batch: Batch, noise: Noise | None) -> Array:
    return model.apply(variables, batch, noise)['label_BGC'][RIGHT][..., 0]

  def loss(variables, carry, batch: Batch, ctx: Context) -> Out:
    noise = noise_from_key(ctx.key, batch['row_B']) if ctx.train else None
    logits_BG, right_BG = logits(variables, batch, noise), batch[f'{RIGHT}_BG']
    weight_B = batch['example_weight_BG'][:, 0]
    picked_B = jnp.sum(right_BG * logits_BG, 1)
    nll_B = jax.nn.logsumexp(logits_BG, axis=1) - picked_B
    best_B = (picked_B >= jnp.max(logits_BG, 1)).astype(jnp.float32)
    weight = jnp.sum(weight_B)
    return Out(
      {
        RIGHT: Term(jnp.sum(weight_B * nll_B), weight, scale=1.0),
        f'{RIGHT}_accuracy': Term(jnp.sum(weight_B * best_B), weight),
      },
      carry,
    )

  def predict(variables, carry, batch: Batch, hidden: bool = False) -> dict[str, Array]:
    return model.apply(variables, batch, None, hidden)

  return Objective(model.init, loss, predict, lambda batch: (), model.flops, evals=('choice',))


OBJECTIVE = Factory(Options, make)
