"""The next words of labelled texts, learned beside their labels (Radford et al. 2018, equation 5).

  the label's loss + lm * mean over texts of (mean over their words of -log p)

as openai/finetune-transformer-lm, train.py:model: each text weighs the same, however long; words
are all tokens that a text has behind its first, special ones too. One pass gives both.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from bertjax.errors import UserError
from bertjax.field_types import NonNegative
from bertjax.objectives import lm
from bertjax.types import Array, Batch, Term

NAME = 'lm'
Terms = Callable[[Any, Batch], dict[str, Term]]


class Options(NamedTuple):
  """The fields of `config.objective`.

  Attributes:
    lm: factor of the loss of the texts' next words, see `beside`; 0: it is left out.
  """

  lm: NonNegative = 0.0


def beside(terms: Terms, model: Any, factor: float) -> Terms:
  """Returns the terms of labels with those of the next words, times `factor`; 0: the labels' alone.
  Raises UserError: a factor for a model that scores no next words."""
  if not factor:
    return terms
  if not model.scores_next:
    raise UserError(
      f'config.objective.lm={factor} is of models whose labelled form scores the next words too, '
      'as that of configs/gpt.py: expected config.objective.lm=0.0'
    )

  def both(out: Any, batch: Batch) -> dict[str, Term]:
    nll_BG = text_losses(out['word'], batch)
    return terms(out, batch) | {NAME: Term.mean(nll_BG, batch['example_weight_BG'], factor)}

  return both


def text_losses(scores: Any, batch: Batch) -> Array:
  """Returns the mean of -log p over the words of each example of each row, float32 [B, G]; 0 of one
  without any."""
  token_BT, example_BT = batch['token_BT'], batch['example_BT']
  next_BT = jnp.pad(example_BT[:, 1:], ((0, 0), (0, 1)))
  nll_BT, _ = lm.score(scores, jnp.roll(token_BT, -1, 1))
  number_1G1 = jnp.arange(1, batch['first_BG'].shape[1] + 1)[None, :, None]
  of_BGT = ((example_BT == next_BT)[:, None] & (example_BT[:, None] == number_1G1)).astype(float)
  return jnp.einsum('BGT,BT->BG', of_BGT, nll_BT) / jnp.maximum(jnp.sum(of_BGT, -1), 1)
