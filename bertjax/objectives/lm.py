"""Language modelling of a stream: every position predicts the token after it, with memory.

Transformer-XL's loss: the mean over all tokens of a batch (kimiyoung/transformer-xl, train.py).
The memory is the carry; evaluation has its own, of its own length (`config.evals.held_out.model`).
"""

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np

from bertjax import flops, registry
from bertjax.errors import choose
from bertjax.kernels import adaptive_softmax
from bertjax.kernels.adaptive_softmax import AdaptiveScores
from bertjax.kernels.cross_entropy import Scores, cross_entropy, logits
from bertjax.kernels.dropout import noise_from_key
from bertjax.models.layers import memory as memory_lib
from bertjax.types import Array, Batch, Context, Objective, Out, Term, means

UNITS = ('word', 'character', 'byte')


def make(config) -> Objective:
  """Builds the objective from a run's config.

  `config.objective`: name, unit (a token is a 'word': perplexity is logged; or a 'character' or
  'byte': bits per each).

  Raises:
    UserError: an unknown unit, or a model that does not take `config.length` columns.
  """
  module = registry.find('bertjax.models', config.model.name, 'config.model.name')
  model = module.make(config.model)
  module.check_length(model, config.length)
  unit = choose(config.objective.unit, UNITS, 'config.objective.unit')

  def predict(variables, memory, batch: Batch, hidden: bool = False) -> dict[str, Array]:
    out = model.apply(variables, batch, memory_lib.before(memory, batch), None, hidden)
    return dict(out, logits_BPV=all_scores(out['word']))

  def finish(sums: Mapping[str, tuple[Any, Any]]) -> dict[str, float]:
    found = means(sums)
    if 'lm' in found:
      found |= in_unit(found['lm'], unit)
    return found

  def step_flops(batch: Batch) -> float:
    return stream_flops(model, batch)

  carry = lambda batch: memory_lib.empty(model, batch)
  loss, evals = mean_loss(model, 'lm'), ('loss', 'recurrence')
  return Objective(model.init, loss, predict, carry, step_flops, finish, evals=evals)


def mean_loss(model: Any, name: str) -> Callable[..., Out]:
  """`Objective.loss` of a model with memory: the mean of its slots' losses, as term `name`."""

  def loss(variables, memory, batch: Batch, ctx: Context) -> Out:
    noise = noise_from_key(ctx.key, batch['row_B']) if ctx.train else None
    out = model.apply(variables, batch, memory_lib.before(memory, batch), noise)
    weight_BP = batch['weight_BP']
    nll_BP, right_BP = score(out['word'], batch['target_BP'])
    weight = jnp.sum(weight_BP)
    terms = {
      name: Term(jnp.sum(weight_BP * nll_BP), weight, scale=1.0),
      f'{name}_accuracy': Term(jnp.sum(weight_BP * right_BP), weight),
    }
    return Out(terms, out['memory'])

  return loss


def score(scores: Scores | AdaptiveScores, target_BP: Array) -> tuple[Array, Array]:
  """-log p of the targets, and where they score best; float32 [B, P]."""
  if isinstance(scores, AdaptiveScores):
    return adaptive_softmax.adaptive_cross_entropy(scores, target_BP)
  return cross_entropy(scores, target_BP)


def all_scores(scores: Scores | AdaptiveScores) -> Array:
  """Logits of all words, or with clusters their log-probabilities; float32 [B, P, V]."""
  if isinstance(scores, AdaptiveScores):
    return adaptive_softmax.log_probabilities(scores)
  return logits(scores)


def in_unit(nll: float, unit: str) -> dict[str, float]:
  """A mean loss in nats as the papers give it."""
  if unit != 'word':
    return {f'bits_per_{unit}': nll / math.log(2)}
  return dict(perplexity=math.exp(min(nll, 700.0)))  # beyond, a double overflows


def stream_flops(model: Any, batch: Batch) -> float:
  """Model FLOPs of a training step on a host batch, with a full memory; see `bertjax.flops`."""
  real_BT = np.asarray(batch['example_BT']) > 0
  rows, length = real_BT.shape
  real, heads = float(real_BT.sum()), model.heads * model.head_size
  relative = model.attention == 'relative'
  count = flops.head_flops(real, 4 * model.width * heads + 2 * model.width * model.ffn)
  # No gradient reaches the memory or the table of distances: their projections cost 4, not 6.
  count += flops.head_flops(rows * model.mem_len * 2 / 3, 2 * model.width * heads)
  count += relative * flops.head_flops((length + model.mem_len) * 2 / 3, model.width * heads)
  seen_T = np.arange(1, length + 1) + model.mem_len
  if model.same_length:
    seen_T = np.minimum(seen_T, model.mem_len)
  pairs = float((real_BT * seen_T).sum())
  by_distance = model.attention in ('relative', 'shaw')
  count += (18.0 if by_distance else 12.0) * heads * pairs
  weight_BP, target_BP = np.asarray(batch['weight_BP']), np.asarray(batch['target_BP'])
  total = model.layers * count
  # The head, with an entry for each cluster, is at every position; a cluster's words at its own.
  for i, (first, last) in enumerate(pairwise((0, *model.cutoffs, model.vocab_size))):
    inside_BP = (target_BP >= first) & (target_BP < last) if i else True
    entries = last - first + (0 if i else len(model.cutoffs))
    width = model.width // model.div_val**i
    total += flops.head_flops(float(np.sum(weight_BP * inside_BP)), width * entries)
  return total
