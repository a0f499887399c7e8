"""Language modelling at the targets of a batch, with or without labels of whole examples.

BERT: sum(w nll) / (sum(w) + 1e-5) + mean next-sentence cross-entropy (google-research/bert).
RoBERTa: sum of nll over all masked tokens / their number (fairseq). Masked diffusion:
sum(w nll) / number of all tokens (examples/noise/diffusion.py). All denominators are global here.
Which tokens are targets is the masking's to say, what a position sees the model's: causal
language modelling is this objective too.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from bertjax import models
from bertjax.data_contracts import Targets
from bertjax.field_types import NonNegative
from bertjax.kernels.cross_entropy import Scores, cross_entropy, logits, score
from bertjax.models.layers.contracts import TargetModel
from bertjax.objectives import in_one_pass, model_of, require_words
from bertjax.types import Array, Batch, Factory, Objective, Term


class Options(NamedTuple):
  """The fields of `config.objective`.

  Attributes:
    plus: added to the masked-LM weight, the denominator of its loss (BERT's 1e-5).
  """

  plus: NonNegative


def masked_terms(scores: Scores, batch: Batch, plus: float, scale: float = 1.0) -> dict[str, Term]:
  """Returns mlm, the trained loss over all targets; mlm_accuracy, the share predicted right; and
  mlm_masked, the loss where the input shows the mask token, which copying cannot lower."""
  weight_BP, target_BP = batch['weight_BP'], batch['target_BP']
  nll_BP, right_BP, _ = cross_entropy(scores, target_BP)
  masked_BP = weight_BP * batch['masked_BP']
  terms = Term.learned('mlm', nll_BP, right_BP, weight_BP, scale, plus)
  if 'divisor_B' in batch:
    terms['mlm'] = terms['mlm']._replace(weight=jnp.sum(batch['divisor_B']))
  return dict(terms, mlm_masked=Term.mean(nll_BP, masked_BP))


def label_terms(name: str, logits_BGC: Array, batch: Batch) -> dict[str, Term]:
  """Loss and accuracy of a label, `<name>_BG` of the batch, over the packed examples."""
  nll_BG, right_BG, _ = score(logits_BGC, batch[f'{name}_BG'])
  return Term.learned(name, nll_BG, right_BG, batch['example_weight_BG'])


def targets(config) -> Sequence[Targets]:
  """Returns what the words of a `config.model` are learned from: a model that sees later tokens
  would copy the next one, and one that does not sees too little of a text with holes."""
  return ('next',) if models.bare(config.model).causal else ('hidden',)


def make(config) -> Objective:
  """Builds the objective from a run's config. Every label of `config.model.labels` is learned
  beside the words. Raises UserError: see `model_of`; a model without words."""
  model = model_of(config.model, config.objective.name, TargetModel)
  require_words(config.model)
  plus = float(config.objective.plus)

  def terms(out: Any, batch: Batch) -> dict[str, Term]:
    found = masked_terms(out['word'], batch, plus)
    for name, logits_BGC in out['label_BGC'].items():
      found |= label_terms(name, logits_BGC, batch)
    return found

  def predict(variables, carry, batch: Batch) -> dict[str, Array]:
    out = model.apply(variables, batch)
    return dict(out, logits_BPV=logits(out['word']))

  # A causal position does not see the tokens after it, so none is hidden to be completed.
  of_words = () if model.causal else ('pseudo_perplexity', 'bound', 'fill_mask')
  evals = ('loss', 'linear_probe', *of_words)
  return in_one_pass(model, terms, evals)._replace(predict=predict)


OBJECTIVE = Factory(Options, make, targets=targets)
