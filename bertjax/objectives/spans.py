"""The span of a text that answers a question, by its first and its last token (Devlin et al. 2019,
section 4.2; google-research/bert, run_squad.py:compute_loss).

Each token has two scores, that the answer begins and that it ends there, and the loss of a row is
the mean of two cross-entropies over its tokens. Padding takes no part in their softmax, so that a
row has one loss whatever the length of its batch; in the original, whose rows are all of one
length, it does.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bertjax.errors import UserError
from bertjax.models.layers.contracts import LabelModel
from bertjax.objectives import labels_of, model_of, of_heads, refuse_words
from bertjax.types import Array, Batch, Factory, Objective, Term

LABEL = 'span'
NEVER = -1e30  # the logit of padding; finite, since a row may have nothing else


class Options(NamedTuple):
  """The objective has no fields."""


def span_terms(logits_BT2: Array, batch: Batch) -> dict[str, Term]:
  """The loss of the spans, and the share of rows whose two ends are both the likeliest."""
  real_BT1 = batch['example_BT'][..., None] > 0
  logits_BT2 = jnp.where(real_BT1, logits_BT2, NEVER)
  ends_B2 = jnp.concatenate([batch[f'{LABEL}_start_BG'], batch[f'{LABEL}_end_BG']], 1)
  log_p_BT2 = jax.nn.log_softmax(logits_BT2, axis=1)
  picked_B2 = jnp.take_along_axis(log_p_BT2, ends_B2[:, None], axis=1)[:, 0]
  right_B = jnp.all(jnp.argmax(logits_BT2, 1) == ends_B2, 1)
  weight_B = batch['example_weight_BG'][:, 0]
  return {
    LABEL: Term(-jnp.sum(weight_B * jnp.mean(picked_B2, 1)), jnp.sum(weight_B), scale=1.0),
    f'{LABEL}_accuracy': Term(jnp.sum(weight_B * right_B), jnp.sum(weight_B)),
  }


def make(config) -> Objective:
  """Builds the objective from a run's config: `config.model.token_labels` is (('span', 2),).

  Raises:
    UserError: see `model_of`; a model with a head for words, or with other labels.
  """
  model = model_of(config, LabelModel)
  heads = [labels_of(config.model, key) for key in ('labels', 'token_labels')]
  if heads != [(), ((LABEL, 2),)]:
    raise UserError(
      f"the objective 'spans' learns two scores of each token: expected config.model.labels=() and "
      f'token_labels=(({LABEL!r}, 2),), got {heads[0]!r} and {heads[1]!r}'
    )
  refuse_words(config)
  terms = lambda out, batch: span_terms(out['token_label_BTC'][LABEL], batch)
  return of_heads(model, terms, ('spans',))


OBJECTIVE = Factory(Options, make)
