"""StableAdamW: AdamW that takes smaller steps where the second moment lags behind the gradient."""

from typing import Any

import jax.numpy as jnp
import optax

from bertjax.field_types import Fraction, NonNegative, Positive
from bertjax.optim.leaves import Leaves
from bertjax.types import Array


def stable_adamw(
  leaves: Leaves, *, b1: Fraction = 0.9, b2: Fraction, eps: Positive, weight_decay: NonNegative
) -> optax.GradientTransformation:
  """(m / (sqrt(v) + eps) + weight_decay * p) / max(1, RMS), the RMS that of g / max(sqrt(v), eps).

  Wortsman et al. 2023, algorithm 2; torch-optimi's StableAdamW, with which ModernBERT was trained.
  Both keep debiased moments, m' = b' m' + (1 - b') g with b' = b (1 - b^(t-1)) / (1 - b^t); they
  are the corrected moments m / (1 - b^t), and the state here is Adam's. The RMS is over the entries
  of one tensor, each layer of a stack by itself.

  The clip divides the learning rate and with it the decay, which is a multiple of the learning rate
  as with the other optimizers: optimi's default. Where the decay is that of a step at the peak
  (optimi's `decouple_lr=True`, ModernBERT's decoupled_stableadamw), give decay / peak.

  Args:
    b1, b2: shares of the moments m and v that a step keeps.
    eps: added to sqrt(v), and the least root in the RMS.
    weight_decay: multiplied by the learning rate.
  """
  tx = optax.chain(optax.scale_by_adam(b1, b2, eps), leaves.add_decay(weight_decay))

  def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
    grads = updates
    updates, state = tx.update(grads, state, params)
    nu = optax.tree.bias_correction(state[0].nu, b2, state[0].count)

    def clipped(update: Array, grad: Array, nu: Array) -> Array:
      rms = jnp.sqrt(jnp.mean(grad**2 / jnp.maximum(nu, eps**2)))
      return update / jnp.maximum(1.0, rms)

    return leaves.map_tensors(clipped, updates, grads, nu), state

  return optax.GradientTransformation(tx.init, update)


DIRECTION = stable_adamw
