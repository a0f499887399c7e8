"""AdamW, with the moments corrected or not, and the two places where eps may stand."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from bertjax.errors import UserError
from bertjax.field_types import Fraction, NonNegative, Positive
from bertjax.optim.leaves import WHAT, Leaves


def scale_by_raw_adam(
  b1: float, b2: float, eps: float, corrected: bool = False
) -> optax.GradientTransformation:
  """m / (sqrt(v) + eps) of the raw moments: Adam as BERT, ALBERT, ELECTRA and XLNet wrote it.

  google-research/bert, optimization.py:AdamWeightDecayOptimizer. With `corrected` the quotient is
  multiplied by sqrt(1 - b2^t) / (1 - b1^t): fairseq's adam.py. optax's own corrects the moments
  before it adds eps. The state is optax's, so phases of one run may differ in it.
  """

  def update(updates, state: Any, params=None):
    mu = optax.tree.update_moment(updates, state.mu, b1, 1)
    nu = optax.tree.update_moment_per_elem_norm(updates, state.nu, b2, 2)
    count = optax.safe_increment(state.count)
    scale = jnp.sqrt(1 - b2**count) / (1 - b1**count) if corrected else 1.0
    raw = jax.tree.map(lambda m, v: scale * m / (jnp.sqrt(v) + eps), mu, nu)
    return raw, optax.ScaleByAdamState(count, mu, nu)

  return optax.GradientTransformation(optax.scale_by_adam(b1, b2, eps).init, update)


def adamw(
  leaves: Leaves,
  *,
  b1: Fraction = 0.9,
  b2: Fraction,
  eps: Positive,
  bias_correction: bool = True,
  weight_decay: NonNegative = 0.0,
  eps_first: bool = False,
) -> optax.GradientTransformation:
  """m / (sqrt(v) + eps) + weight_decay * p, decay multiplied by the learning rate as the rest is.

  Args:
    b1, b2: shares of the moments m and v that a step keeps.
    eps: added to sqrt(v).
    weight_decay: multiplied by the learning rate.
    bias_correction: of the moments; torch.optim.AdamW with it, BERT's without.
    eps_first: add eps before the correction, as fairseq (RoBERTa, SpanBERT) does. It is an eps of
      eps / sqrt(1 - b2^t): with b2 = .98, 7 times eps at first, 1% more after 200 steps.
  """
  if eps_first and not bias_correction:
    raise UserError(f'{WHAT}.eps_first is about the bias correction, which is off; remove it')
  if bias_correction and not eps_first:
    moments = optax.scale_by_adam(b1, b2, eps)
  else:
    moments = scale_by_raw_adam(b1, b2, eps, corrected=bias_correction)
  return optax.chain(moments, leaves.add_decay(weight_decay))


DIRECTION = adamw
