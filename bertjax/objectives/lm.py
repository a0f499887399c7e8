"""Language modelling of a stream: every position predicts the token after it, with memory.

Transformer-XL's loss: the mean over all tokens of a batch (kimiyoung/transformer-xl, train.py).
The carry is the model's own, a memory or an LSTM's state; evaluation has another, a memory of its
own length (`config.evals.held_out.model`).
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from bertjax.kernels import adaptive_softmax
from bertjax.kernels.adaptive_softmax import AdaptiveScores
from bertjax.kernels.cross_entropy import Scores, cross_entropy
from bertjax.models.layers.contracts import StreamModel
from bertjax.models.layers.heads import all_scores
from bertjax.models.layers.memory import Start
from bertjax.objectives import model_of, noise_of
from bertjax.types import Array, Batch, Context, Factory, Objective, Out, Term, means

Unit = Literal['word', 'character', 'byte']


class Options(NamedTuple):
  """The fields of `config.objective`.

  Attributes:
    unit: what a token is. Of a 'word' the perplexity is logged, of the others the bits per each.
    memory: what a run begins with; see models/layers/memory.py.
  """

  unit: Unit = 'word'
  memory: Start = 'empty'


def make(config) -> Objective:
  """Builds the objective from a run's config. Raises UserError: a model that does not take
  `config.length` columns, or see `model_of`."""
  model = model_of(config.model, config.objective.name, StreamModel)
  model.require_room(config.length, 'config.length')
  evals = ('loss', 'recurrence', 'likelihood', 'linear_probe')
  ended = functools.partial(finish, term='lm', unit=config.objective.unit)
  return over_a_stream(model, 'lm', config.objective.memory, evals)._replace(finish=ended)


def before(model: Any, carry: Any, batch: Batch, start: Start) -> Any:
  """Returns the carry without the rows whose text begins anew; with all, if `start` is 'zeros'."""
  if start == 'zeros' or 'start_B' not in batch:
    return carry
  return model.reset(carry, batch['start_B'])


def over_a_stream(model: Any, name: str, start: Start, evals: Sequence[str]) -> Objective:
  """Returns the objective of a model with a carry whose loss is the mean of its slots' losses, as
  term `name`; `start` is what a run begins with."""

  def loss(variables, carry, batch: Batch, ctx: Context) -> Out:
    noise = noise_of(batch, ctx)
    out = model.apply(variables, batch, before(model, carry, batch, start), noise)
    nll_BP, right_BP = score(out['word'], batch['target_BP'])
    terms = Term.learned(name, nll_BP, right_BP, batch['weight_BP'])
    return Out(terms | out.get('penalties', {}), out['carry'])

  def predict(variables, carry, batch: Batch) -> dict[str, Array]:
    out = model.apply(variables, batch, before(model, carry, batch, start))
    return dict(out, logits_BPV=all_scores(out['word']))

  first = lambda batch: model.carry(len(batch['token_BT']), start)
  return Objective(model.init, loss, predict, first, model.flops, evals=evals)


def score(scores: Scores | AdaptiveScores, target_BP: Array) -> tuple[Array, Array]:
  """-log p of the targets, and where they score best; float32 [B, P]."""
  if isinstance(scores, AdaptiveScores):
    return adaptive_softmax.adaptive_cross_entropy(scores, target_BP)
  return cross_entropy(scores, target_BP)[:2]


def finish(sums: Mapping[str, tuple[Any, Any]], term: str, unit: Unit = 'word') -> dict[str, float]:
  """`Objective.finish` of an objective whose loss of a token is the term; it is given in the
  unit of the papers, too."""
  found = means(sums)
  if term not in found:
    return found
  if unit != 'word':
    return found | {f'bits_per_{unit}': found[term] / math.log(2)}
  return found | dict(perplexity=math.exp(min(found[term], 700.0)))  # beyond, a double overflows


OBJECTIVE = Factory(Options, make, targets=lambda config: ('next',))
