"""An upper bound of -log p of held-out texts, by a model of masked words.

Of a row of L tokens k are hidden, and their losses count L / k: k is spread evenly over 1 .. L, and
the places are drawn uniformly. The mean is that of masked diffusion's loss over t, whose weight
1 / t stands for the mean of L / k (LLaDA, get_log_likelihood.py); it equals -log p where the model
predicts as one law of texts does (any order of reading has the same likelihood). What has the
bound's exponential is a bound of a perplexity, and compares with other bounds.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bertjax import counter_rng
from bertjax.errors import UserError
from bertjax.evals.held_out import rows as rows_lib
from bertjax.evals.pseudo_perplexity import restore
from bertjax.examples.noise.diffusion import times
from bertjax.field_types import Count, Natural
from bertjax.metrics.progress import passing
from bertjax.objectives import lm
from bertjax.types import Batch, Evaluation, Evaluator, Report, Subject, Variables

NAMES = frozenset(('bound', 'perplexity', 'standard_error'))


class Options(NamedTuple):
  """The rows to score.

  Attributes:
    rows: number of rows, the first ones of `config.evals.held_out`; 0: none.
    draws: times that each row is hidden in part, a forward pass each.
  """

  rows: Natural = 128
  draws: Count = 8


def hidden(batch: Batch, number_B: np.ndarray, seed: int, mask: int) -> dict[str, np.ndarray]:
  """Returns a batch with k of the L real tokens of each row hidden, and T slots, weighed L / k;
  `number_B` are the numbers of the draws, which decide alone. Takes a batch that shows every
  token."""
  token_BT, real_BT = batch['token_BT'], batch['example_BT'] > 0
  length_B = real_BT.sum(1)
  k_B = np.ceil(times(number_B, seed, 0.0) * length_B)
  key_B1 = counter_rng.fold(counter_rng.root(seed, 'bound'), number_B)[:, None]
  turn_BT = counter_rng.uniform(counter_rng.fold(key_B1, np.arange(token_BT.shape[1])))
  rank_BT = np.argsort(np.argsort(np.where(real_BT, turn_BT, 2.0), 1), 1)
  hidden_BT = rank_BT < k_B[:, None]
  column_BP = np.argsort(~hidden_BT, 1, kind='stable')
  used_BP = np.take_along_axis(hidden_BT, column_BP, 1)
  slots = dict(target_pos=column_BP, target=np.take_along_axis(token_BT, column_BP, 1))
  weight_BP = used_BP * (length_B / np.maximum(k_B, 1))[:, None]
  kept = {name: value for name, value in batch.items() if name.endswith(('_BT', '_BG'))}
  return kept | dict(
    token_BT=np.where(hidden_BT, mask, token_BT).astype(np.int32),
    weight_BP=weight_BP.astype(np.float32),
    masked_BP=used_BP.astype(np.float32),
    **{f'{name}_BP': np.where(used_BP, x_BP, 0).astype(np.int32) for name, x_BP in slots.items()},
  )


def summed(nll_ND: np.ndarray, length_N: np.ndarray) -> dict[str, float]:
  """Returns the scores of rows: their -log p at each draw, and their tokens. The standard error is
  that of the bound over rows and draws together, as of a ratio of means; one row has none."""
  nll_N, tokens = nll_ND.mean(1), float(length_N.sum())
  bound, rows = float(nll_N.sum()) / tokens, len(nll_N)
  found = dict(bound=bound, perplexity=math.exp(bound))
  if rows == 1:
    return found
  apart = float(np.sum((nll_N - bound * length_N) ** 2)) * rows / (rows - 1)
  return found | dict(standard_error=math.sqrt(apart) / tokens)


def make(subject: Subject, options: Options) -> Evaluation:
  """Returns the bound of the first held-out rows, in nats a token, special ones too. Raises
  UserError: a vocabulary without a mask token."""
  of_rows, set_of = rows_lib.main_set(subject)
  held_out = rows_lib.hold_out(of_rows, set_of)
  if held_out is None:
    return rows_lib.NOTHING
  mask = subject.store.special.get('mask')
  if mask is None:
    raise UserError(
      f'{subject.key} hides tokens behind the mask token, which the vocabulary of '
      f'{subject.store.path} has none of: expected rows=0, or a vocabulary with one'
    )
  predict, rows = held_out.objective.predict, min(options.rows, held_out.rows.rows)

  def row_nll(variables: Variables, carry: Any, batch: Batch) -> jax.Array:
    scores: Any = predict(variables, carry, batch)['word']
    nll_BP, _ = lm.score(scores, batch['target_BP'])
    return jnp.sum(nll_BP * batch['weight_BP'], 1)

  compiled, size = subject.compile(row_nll), held_out.batch_size

  def run(variables: Variables, step: int) -> Report:
    nll: list[np.ndarray] = []
    length: list[np.ndarray] = []
    carry, batches = held_out.carry(), -(-rows // size)
    for number, (batch, count) in enumerate(passing('Bound', held_out.first(rows), batches)):
      shown = dict(batch, token_BT=restore(batch))
      first_B = (number * size + np.arange(size)) * options.draws
      parts = (hidden(shown, first_B + n, set_of.seed, mask) for n in range(options.draws))
      found = [np.asarray(compiled(variables, carry, held_out.put(part))) for part in parts]
      nll.append(np.stack(found, 1)[:count])
      length.append((batch['example_BT'] > 0).sum(1)[:count])
    return Report(summed(np.concatenate(nll), np.concatenate(length)))

  return Evaluation(NAMES if rows > 1 else NAMES - {'standard_error'}, run)


EVALUATOR = Evaluator(Options, make, idle=lambda options: not options.rows, at_end=True)
