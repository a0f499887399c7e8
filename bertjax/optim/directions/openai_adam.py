"""Adam as OpenAI fine-tuned GPT: finetune-transformer-lm, opt.py:adam."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from bertjax.field_types import Fraction, NonNegative, Positive
from bertjax.optim.directions.adamw import scale_by_raw_adam
from bertjax.optim.leaves import Leaves


def openai_adam(
  leaves: Leaves, *, b1: Fraction, b2: Fraction, eps: Positive, weight_decay: NonNegative = 0.0
) -> optax.GradientTransformation:
  """sqrt(1 - b2^t) / (1 - b1^t) times (m / (sqrt(v) + eps) + weight_decay * p): the correction of
  the moments is one of the rate, and so decay has it too, .32 at first with b2 = .999.

  Args:
    b1, b2: shares of the moments m and v that a step keeps.
    eps: added to sqrt(v).
    weight_decay: multiplied by the corrected rate.
  """
  raw = optax.chain(scale_by_raw_adam(b1, b2, eps), leaves.add_decay(weight_decay))

  def update(updates, state: Any, params=None):
    updates, state = raw.update(updates, state, params)
    count = state[0].count
    scale = jnp.sqrt(1 - b2**count) / (1 - b1**count)
    return jax.tree.map(lambda u: scale * u, updates), state

  return optax.GradientTransformation(raw.init, update)


DIRECTION = openai_adam
