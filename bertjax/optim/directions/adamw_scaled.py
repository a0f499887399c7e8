"""AdamW whose step is a share of the parameter: nanoT5's AdamWScale, copied_utils.py."""

import optax

from bertjax.field_types import Fraction, NonNegative, Positive
from bertjax.optim.leaves import Leaves


def adamw_scaled(
  leaves: Leaves,
  *,
  b1: Fraction,
  b2: Fraction,
  eps: Positive,
  min_scale: NonNegative = 1e-3,
  weight_decay: NonNegative = 0.0,
) -> optax.GradientTransformation:
  """Adam's direction times the RMS of the parameter, as Adafactor's, plus weight_decay * p.

  Args:
    b1, b2: shares of the moments m and v, which are corrected, that a step keeps.
    eps: added to sqrt(v).
    min_scale: smallest RMS that a parameter counts as; with 0 a zero tensor stays zero.
    weight_decay: multiplied by the learning rate.
  """
  scaled = leaves.per_tensor(optax.scale_by_param_block_rms(min_scale))
  return optax.chain(optax.scale_by_adam(b1, b2, eps), scaled, leaves.add_decay(weight_decay))


DIRECTION = adamw_scaled
