"""Adafactor: second moments as the product of two vectors."""

import math

import jax
import optax

from bertjax.field_types import Count, NonNegative, Positive
from bertjax.optim import param_rules
from bertjax.optim.leaves import HEADS, Leaves


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
  `min_factored` entries; heads and head are one axis, as t5x keeps them. T5: decay_rate .8, eps
  1e-30, min_factored 128, clip_rms 1 and min_scale 1e-3.

  Args:
    decay_rate: second moments decay by 1 - t^-decay_rate.
    eps: added to g^2.
    min_factored: fewest entries of an axis that has a factor.
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
  joined = jax.tree.map(lambda p, axes: _joined(p.shape, axes, min_factored), *leaves[:2])
  tx = leaves.per_tensor(direction)
  view = lambda tree: jax.tree.map(lambda x, shape: x.reshape(shape), tree, joined)

  def update(updates, state, params=None):
    found, state = tx.update(view(updates), state, view(params))
    return jax.tree.map(lambda u, p: u.reshape(p.shape), found, updates), state

  matrices = optax.GradientTransformation(lambda params: tx.init(view(params)), update)
  return optax.chain(matrices, leaves.add_decay(weight_decay))


def _joined(shape: tuple[int, ...], axes: tuple, min_factored: int) -> tuple[int, ...]:
  """Returns the shape with heads and head as one axis, if the tensor has factors in a view."""
  at = next((i for i in range(len(axes)) if axes[i : i + 2] == HEADS), None)
  if at is None:
    return shape
  joined = (*shape[:at], math.prod(shape[at : at + 2]), *shape[at + 2 :])
  tensor = slice(int(param_rules.is_stack(axes)), None)
  large = (sorted((0, *s[tensor]))[-2] >= min_factored for s in (shape, joined))
  return joined if any(large) else shape


DIRECTION = adafactor
