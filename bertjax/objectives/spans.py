"""The span of a text that answers a question, by its first and its last token (Devlin et al. 2019,
section 4.2; google-research/bert, run_squad.py:compute_loss).

Each token has two scores, that the answer begins and that it ends there, and the loss of a row is
the mean of two cross-entropies over its tokens. Padding takes no part in their softmax, so that a
row has one loss whatever the length of its batch; in the original, whose rows are all of one
length, it does.

With `config.model.answers` the ends are scored behind the right start, and half of the binary
cross-entropy of having no answer is added (zihangdai/xlnet, run_squad.py:get_model_fn; google-
research/electra, configure_finetuning.py: answerable_weight).
"""

from typing import Any

import jax
import jax.numpy as jnp

from bertjax.kernels.look_up import one_of
from bertjax.models.layers.answers import FORMS, NEVER, Given
from bertjax.objectives import check_heads, in_one_pass, label_model, labels_of
from bertjax.options import NoOptions
from bertjax.types import Array, Batch, Factory, Objective, Term

LABEL = 'span'
NONE_SCALE = 0.5  # of the loss of having no answer


def span_terms(logits_BT2: Array, batch: Batch) -> dict[str, Term]:
  """Returns the loss of the spans, and the share of rows whose two ends are both the likeliest."""
  real_BT1 = batch['example_BT'][..., None] > 0
  logits_BT2 = jnp.where(real_BT1, logits_BT2, NEVER)
  ends_B2 = jnp.concatenate([batch[f'{LABEL}_start_BG'], batch[f'{LABEL}_end_BG']], 1)
  log_p_BT2 = jax.nn.log_softmax(logits_BT2, axis=1)
  picked_B2 = one_of(log_p_BT2, ends_B2, 1)
  right_B = jnp.all(jnp.argmax(logits_BT2, 1) == ends_B2, 1)
  weight_B = batch['example_weight_BG'][:, 0]
  return Term.learned(LABEL, -jnp.mean(picked_B2, 1), right_B, weight_B)


def answer_terms(given: Given, batch: Batch, by_window: bool) -> dict[str, Term]:
  """Returns `span_terms`, and loss and accuracy of the decision whether there is an answer: reads
  also first and span_impossible, 1 of questions without one; by_window is as of `answers.Form`."""
  window_B = batch[f'{LABEL}_start_BG'][:, 0] == batch['first_BG'][:, 0]
  none_B = window_B if by_window else batch[f'{LABEL}_impossible_BG'][:, 0] > 0
  signed_B = jnp.where(none_B, given.none_B, -given.none_B)
  rows_B = batch['example_weight_BG'][:, 0]
  none = Term.learned('none', jax.nn.softplus(-signed_B), signed_B > 0, rows_B, NONE_SCALE)
  return span_terms(jnp.stack([given.start_BT, given.end_BT], -1), batch) | none


def said(out: Any) -> Any:
  """Returns the outputs that answers are decoded from: the logits of both ends [B, T, 2], or a
  `Beam`."""
  return out['answers'] if 'answers' in out else out['token_label_BTC'][LABEL]


def make(config) -> Objective:
  """Builds the objective from a run's config: `config.model.token_labels` is (('span', 2),), or
  `config.model.answers` names a form. Raises UserError: see `label_model` and `check_heads`."""
  model = label_model(config)
  form = next((name for name, _ in labels_of(config.model, 'answers')), 'none')
  other = ', or no labels and a head of config.model.answers, which not every model has'
  check_heads(config, token=((LABEL, 2),) if form == 'none' else (), remedy=other)
  if form == 'none':
    terms = lambda out, batch: span_terms(said(out), batch)
  else:
    terms = lambda out, batch: answer_terms(said(out), batch, FORMS[form].by_window)
  return in_one_pass(model, terms, ('spans',))


OBJECTIVE = Factory(NoOptions, make, targets=lambda config: ('answers',))
