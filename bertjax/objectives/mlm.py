"""Masked language modelling, with or without next-sentence prediction.

BERT: sum(w nll) / (sum(w) + 1e-5) + mean next-sentence cross-entropy (google-research/bert).
RoBERTa: sum of nll over all masked tokens / their number (fairseq). Both denominators are global
  here.
"""

import jax
import jax.numpy as jnp
import numpy as np

from bertjax import flops, names
from bertjax.kernels.dropout import noise_from_key
from bertjax.types import Array, Batch, Context, Objective, Out, Term


def score(logits: Array, label: Array) -> tuple[Array, Array]:
  """-log softmax(logits)[label], and 1.0 where no class scores above the label.

  Compares with the maximum instead of calling argmax, which is 60 times slower on a CPU.

  Args:
    logits: float32 [..., V].
    label: int [...].
  """
  picked = jnp.take_along_axis(logits, label[..., None], axis=-1)[..., 0]
  nll = jax.nn.logsumexp(logits, axis=-1) - picked
  return nll, (picked >= jnp.max(logits, axis=-1)).astype(jnp.float32)


def masked_terms(logits_BPV: Array, batch: Batch, plus: float) -> dict[str, Term]:
  """The masked-token loss and its metrics.

  Returns:
    mlm: the trained loss over all targets. mlm_accuracy: share predicted right. mlm_masked: the
      loss where the input shows the mask token, which copying cannot lower.
  """
  weight_BP, target_BP = batch['weight_BP'], batch['target_BP']
  nll_BP, right_BP = score(logits_BPV, target_BP)
  masked_BP = weight_BP * batch['masked_BP']
  return dict(
    mlm=Term(jnp.sum(weight_BP * nll_BP), jnp.sum(weight_BP), scale=1.0, plus=plus),
    mlm_accuracy=Term(jnp.sum(weight_BP * right_BP), jnp.sum(weight_BP)),
    mlm_masked=Term(jnp.sum(masked_BP * nll_BP), jnp.sum(masked_BP)),
  )


def next_terms(logits_BG2: Array, batch: Batch) -> dict[str, Term]:
  """Next-sentence loss and accuracy over the packed examples."""
  weight_BG, label_BG = batch['example_weight_BG'], batch['next_BG']
  nll_BG, right_BG = score(logits_BG2, label_BG)
  return dict(
    next=Term(jnp.sum(weight_BG * nll_BG), jnp.sum(weight_BG), scale=1.0),
    next_accuracy=Term(jnp.sum(weight_BG * right_BG), jnp.sum(weight_BG)),
  )


def make(config) -> Objective:
  """Builds the objective from a run's config.

  `config.objective`: name, next_sentence (bool), plus (added to the masked-LM weight; BERT's 1e-5).
  """
  model = names.load('bertjax.models', config.model.name, 'make', 'config.model.name').make(
    config.model
  )
  next_sentence, plus = bool(config.objective.next_sentence), float(config.objective.plus)
  if next_sentence != model.pooler:
    raise ValueError(
      f'objective.next_sentence={next_sentence} needs model.pooler={next_sentence}, '
      f'got {model.pooler}: set both alike'
    )

  def init(key: Array, batch: Batch):
    return model.init(key, batch)

  def loss(variables, carry, batch: Batch, ctx: Context) -> Out:
    noise = noise_from_key(ctx.key, batch['row_B']) if ctx.train else None
    out = model.apply(variables, batch, noise)
    terms = masked_terms(out['logits_BPV'], batch, plus)
    if next_sentence:
      terms |= next_terms(out['next_BG2'], batch)
    return Out(terms, carry)

  def predict(variables, carry, batch: Batch, hidden: bool = False) -> dict[str, Array]:
    return model.apply(variables, batch, None, hidden)

  def step_flops(batch: Batch) -> float:
    width, vocab = model.width, model.vocab_size
    count = flops.encoder_flops(batch, layers=model.layers, width=width, ffn=model.ffn)
    predicted = float(np.sum(batch['weight_BP']))
    count += flops.head_flops(predicted, width * width, width * vocab)
    if next_sentence:
      examples = float(np.sum(batch['example_weight_BG']))
      count += flops.head_flops(examples, width * width, 2 * width)
    return count

  return Objective(init, loss, predict, lambda batch: (), step_flops)
