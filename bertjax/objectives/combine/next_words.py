"""The next words of labelled texts, learned beside their labels (Radford et al. 2018, equation 5).

  the label's loss + lm * mean over texts of (mean over their words of -log p)

as openai/finetune-transformer-lm, train.py:model: each text weighs the same, however long; words
are all tokens that a text has behind its first, special ones too. One pass gives both.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from bertjax import objectives
from bertjax.errors import UserError
from bertjax.field_types import NonNegative
from bertjax.objectives import lm
from bertjax.types import Array, Batch, Objective, Term

NAME = 'lm'
Terms = Callable[[Any, Batch], dict[str, Term]]


class Options(NamedTuple):
  """The fields of `config.objective`.

  Attributes:
    lm: factor of the loss of the texts' next words; 0: it is left out.
  """

  lm: NonNegative = 0.0


def in_one_pass(model: Any, terms: Terms, factor: float, evals: Sequence[str]) -> Objective:
  """Returns `objectives.in_one_pass` with the loss of the next words, times `factor`, beside the
  terms of labels; 0: those alone. Raises UserError: a factor for a model that scores no next
  words."""
  if not factor:
    return objectives.in_one_pass(model, terms, evals)
  if not model.scores_next:
    raise UserError(
      f'config.objective.lm={factor} is of models whose labelled form scores the next words too, '
      'as that of configs/gpt.py: expected config.objective.lm=0.0'
    )

  def both(out: Any, batch: Batch) -> dict[str, Term]:
    nll_BG = text_losses(out['word'], batch)
    return terms(out, batch) | {NAME: Term.mean(nll_BG, batch['example_weight_BG'], factor)}

  def flops(batch: Batch) -> float:
    return model.flops(batch) + model.word_flops(float(np.sum(_goes_on(batch))))

  return objectives.in_one_pass(model, both, evals)._replace(flops=flops)


def _goes_on(batch: Batch) -> Any:
  """Returns whether a word of the same text follows each column but the last, bool [B, T - 1]."""
  example_BT = batch['example_BT']
  return (example_BT[:, :-1] == example_BT[:, 1:]) & (example_BT[:, 1:] > 0)


def text_losses(scores: Any, batch: Batch) -> Array:
  """Returns the mean of -log p over the words of each example of each row, float32 [B, G]; 0 of one
  without any."""
  nll_BT, _ = lm.score(scores, jnp.roll(batch['token_BT'], -1, 1))
  goes_on_BT = jnp.pad(_goes_on(batch), ((0, 0), (0, 1)))
  number_1G1 = jnp.arange(1, batch['first_BG'].shape[1] + 1)[None, :, None]
  of_BGT = (goes_on_BT[:, None] & (batch['example_BT'][:, None] == number_1G1)).astype(float)
  return jnp.einsum('BGT,BT->BG', of_BGT, nll_BT) / jnp.maximum(jnp.sum(of_BGT, -1), 1)
