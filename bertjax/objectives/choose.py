"""One of the parts of a row is right: a softmax over a number for each, read off its first token
(Devlin et al. 2019, section 4.4), or off its last (GPT, XLNet).

The loss is the mean cross-entropy of the rows, as of transformers' `...ForMultipleChoice`.
"""

import jax
import jax.numpy as jnp

from bertjax.models.layers.heads import RIGHT
from bertjax.objectives import check_heads, label_model
from bertjax.objectives.combine import next_words
from bertjax.types import Batch, Factory, Objective, Term


def make(config) -> Objective:
  """Builds the objective from a run's config: `config.model.labels` is (('right', 1),). Raises
  UserError: see `label_model` and `check_heads`."""
  model = label_model(config)
  check_heads(config, text=((RIGHT, 1),))

  def terms(out, batch: Batch) -> dict[str, Term]:
    logits_BG, right_BG = out['label_BGC'][RIGHT][..., 0], batch[f'{RIGHT}_BG']
    picked_B = jnp.sum(right_BG * logits_BG, 1)
    nll_B = jax.nn.logsumexp(logits_BG, axis=1) - picked_B
    best_B = (picked_B >= jnp.max(logits_BG, 1)).astype(jnp.float32)
    return Term.learned(RIGHT, nll_B, best_B, batch['example_weight_BG'][:, 0])

  return next_words.in_one_pass(model, terms, float(config.objective.lm), ('choice',))


OBJECTIVE = Factory(next_words.Options, make, targets=lambda config: ())
