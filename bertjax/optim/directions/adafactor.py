"""Adafactor: second moments as the product of two vectors."""

import optax

from bertjax.field_types import Count, NonNegative, Positive
from bertjax.optim.leaves import Leaves


def adafactor(
  leaves: Leaves,
  *,
  decay_rate: Positive,
  eps: Positive,
  min_factored: Count,
  clip_rms: Positive,
  min_scale: NonNegative,
  weight_decay: NonNegative,
) -> optax.GradientTransformation:
  """g / sqrt(v) with its RMS clipped, times the RMS of the parameter, plus weight_decay * p.

  Shazeer and Stern 2018, as t5x and optax have it: no momentum, second moments with decay
  1 - t^-decay_rate over g^2 + eps, factored over the two largest axes where both have at least
  `min_factored` entries. T5: decay_rate .8, eps 1e-30, min_factored 128, clip_rms 1 and
  min_scale 1e-3.

  Args:
    leaves: the parameters.
    decay_rate, eps, min_factored: see above.
    clip_rms: largest RMS of a tensor's g / sqrt(v).
    min_scale: smallest RMS that a parameter counts as; with 0 a zero tensor stays zero.
    weight_decay: multiplied by the learning rate, unlike optax's.
  """
  direction = optax.chain(
    optax.scale_by_factored_rms(
      decay_rate=decay_rate, min_dim_size_to_factor=min_factored, epsilon=eps
    ),
    optax.clip_by_block_rms(clip_rms),
    optax.scale_by_param_block_rms(min_scale),
  )
  return optax.chain(leaves.per_tensor(direction), leaves.add_decay(weight_decay))


DIRECTION = adafactor
