"""Language modelling at the targets of a batch, with or without labels of whole examples.

BERT: sum(w nll) / (sum(w) + 1e-5) + mean next-sentence cross-entropy (google-research/bert).
RoBERTa: sum of nll over all masked tokens / their number (fairseq). Both denominators are global
here. Which tokens are targets is the corruption's to say, what a position sees the model's: causal
language modelling is this objective too.
"""

import jax.numpy as jnp
import numpy as np

from bertjax import flops, registry
from bertjax.kernels.cross_entropy import Scores, cross_entropy, logits, score
from bertjax.kernels.dropout import noise_from_key
from bertjax.types import Array, Batch, Context, Objective, Out, Term


def masked_terms(scores: Scores, batch: Batch, plus: float) -> dict[str, Term]:
  """The masked-token loss and its metrics.

  Returns:
    mlm: the trained loss over all targets. mlm_accuracy: share predicted right. mlm_masked: the
      loss where the input shows the mask token, which copying cannot lower.
  """
  weight_BP, target_BP = batch['weight_BP'], batch['target_BP']
  nll_BP, right_BP = cross_entropy(scores, target_BP)
  masked_BP = weight_BP * batch['masked_BP']
  return dict(
    mlm=Term(jnp.sum(weight_BP * nll_BP), jnp.sum(weight_BP), scale=1.0, plus=plus),
    mlm_accuracy=Term(jnp.sum(weight_BP * right_BP), jnp.sum(weight_BP)),
    mlm_masked=Term(jnp.sum(masked_BP * nll_BP), jnp.sum(masked_BP)),
  )


def label_terms(name: str, logits_BGC: Array, batch: Batch) -> dict[str, Term]:
  """Loss and accuracy of a label, `<name>_BG` of the batch, over the packed examples."""
  weight_BG = batch['example_weight_BG']
  nll_BG, right_BG = score(logits_BGC, batch[f'{name}_BG'])
  return {
    name: Term(jnp.sum(weight_BG * nll_BG), jnp.sum(weight_BG), scale=1.0),
    f'{name}_accuracy': Term(jnp.sum(weight_BG * right_BG), jnp.sum(weight_BG)),
  }


def make(config) -> Objective:
  """Builds the objective from a run's config.

  `config.objective`: name, plus (added to the masked-LM weight; BERT's 1e-5). Every label of
  `config.model.labels` is learned beside it.
  """
  model = registry.find('bertjax.models', config.model.name, 'config.model.name').make(config.model)
  plus = float(config.objective.plus)

  def init(key: Array, batch: Batch):
    return model.init(key, batch)

  def loss(variables, carry, batch: Batch, ctx: Context) -> Out:
    noise = noise_from_key(ctx.key, batch['row_B']) if ctx.train else None
    out = model.apply(variables, batch, noise)
    terms = masked_terms(out['word'], batch, plus)
    for name, logits_BGC in out['label_BGC'].items():
      terms |= label_terms(name, logits_BGC, batch)
    return Out(terms, carry)

  def predict(variables, carry, batch: Batch, hidden: bool = False) -> dict[str, Array]:
    out = model.apply(variables, batch, None, hidden)
    return dict(out, logits_BPV=logits(out['word']))

  def step_flops(batch: Batch) -> float:
    width, table_width = model.width, model.embedding_width or model.width
    visits = model.layers * model.inner_groups  # what is shared is computed every time
    count = flops.encoder_flops(batch, layers=visits, width=width, ffn=model.ffn)
    if table_width != width:
      real = float(np.sum(batch['example_BT'] > 0))
      count += flops.head_flops(real, table_width * width)
    predicted = float(np.sum(batch['weight_BP']))
    transform = width * table_width if model.transform else 0
    count += flops.head_flops(predicted, transform, table_width * model.vocab_size)
    if model.labels:
      examples = float(np.sum(batch['example_weight_BG']))
      classes = sum(classes for _, classes in model.labels)
      count += flops.head_flops(examples, width * width, classes * width)
    return count

  # A causal position does not see the tokens after it, so none is hidden to be completed.
  evals = ('loss',) if model.attend == 'causal' else ('loss', 'pseudo_perplexity', 'fill_mask')
  return Objective(init, loss, predict, lambda batch: (), step_flops, evals=evals)
