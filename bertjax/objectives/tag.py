"""A tag for each word, read off its first piece (Devlin et al. 2019, sections 4.1 and 5.3).

The loss is the mean cross-entropy of the words, as of transformers' `...ForTokenClassification`.
"""

from typing import NamedTuple

import jax.numpy as jnp

from bertjax.errors import UserError
from bertjax.kernels.cross_entropy import score
from bertjax.models.layers.contracts import TargetModel
from bertjax.objectives import model_of, of_heads, refuse_words
from bertjax.types import Batch, Factory, Objective, Term

TAG = 'tag'


class Options(NamedTuple):
  """The objective has no fields."""


def make(config) -> Objective:
  """Builds the objective from a run's config: `config.model.token_labels` is (('tag', C),).

  Raises:
    UserError: see `model_of`; a model with a head for words, or with other heads of tokens.
  """
  model = model_of(config, TargetModel)
  labels = tuple(config.model.token_labels) if 'token_labels' in config.model else ()
  if [name for name, _ in labels] != [TAG] or config.model.labels:
    raise UserError(
      f"the objective 'tag' learns tags alone: expected config.model.token_labels=(({TAG!r}, 0),) "
      f'and labels=(), got {labels!r} and {tuple(config.model.labels)!r}'
    )
  refuse_words(config)
  if dict(labels)[TAG] < 2:
    raise UserError(
      "the objective 'tag' needs examples with tags: expected config.data.task.name='tags', or a "
      f'task of yours that has them, got a head of {dict(labels)[TAG]} classes'
    )

  def terms(out, batch: Batch) -> dict[str, Term]:
    weight_BT = batch['tag_weight_BT']
    nll_BT, right_BT = score(out['token_label_BTC'][TAG], batch['tag_BT'])
    return {
      TAG: Term(jnp.sum(weight_BT * nll_BT), jnp.sum(weight_BT), scale=1.0),
      f'{TAG}_accuracy': Term(jnp.sum(weight_BT * right_BT), jnp.sum(weight_BT)),
    }

  return of_heads(model, terms, ('tagging',))


OBJECTIVE = Factory(Options, make)
