"""One of the parts of a row is right: a softmax over a number for each, read off its first token
(Devlin et al. 2019, section 4.4), or off its last (GPT, XLNet).

The loss is the mean cross-entropy of the rows, as of transformers' `...ForMultipleChoice`.
"""

import jax
import jax.numpy as jnp

from bertjax.errors import UserError
from bertjax.objectives import label_model, labels_of, refuse_words
from bertjax.objectives.combine import next_words
from bertjax.types import Batch, Factory, Objective, Term

RIGHT = 'right'


def make(config) -> Objective:
  """Builds the objective from a run's config: `config.model.labels` is (('right', 1),). Raises
  UserError: see `label_model`; a model with a head for words, or with other labels."""
  model = label_model(config)
  labels = labels_of(config.model)
  if labels != ((RIGHT, 1),):
    raise UserError(
      "the objective 'choose' has one number for each choice: expected config.model.labels="
      f'(({RIGHT!r}, 1),), got {labels!r}'
    )
  refuse_words(config)

  def terms(out, batch: Batch) -> dict[str, Term]:
    logits_BG, right_BG = out['label_BGC'][RIGHT][..., 0], batch[f'{RIGHT}_BG']
    picked_B = jnp.sum(right_BG * logits_BG, 1)
    nll_B = jax.nn.logsumexp(logits_BG, axis=1) - picked_B
    best_B = (picked_B >= jnp.max(logits_BG, 1)).astype(jnp.float32)
    return Term.learned(RIGHT, nll_B, best_B, batch['example_weight_BG'][:, 0])

  return next_words.of_heads(model, terms, float(config.objective.lm), ('choice',))


OBJECTIVE = Factory(next_words.Options, make, targets=lambda config: ())
