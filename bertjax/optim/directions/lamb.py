"""LAMB: AdamW's direction with every tensor's length set to that of the tensor."""

import jax
import jax.numpy as jnp
import optax

from bertjax.field_types import Fraction, NonNegative, Positive
from bertjax.optim.directions.adamw import adamw
from bertjax.optim.leaves import Leaves


def lamb(
  leaves: Leaves,
  *,
  b1: Fraction = 0.9,
  b2: Fraction,
  eps: Positive,
  bias_correction: bool = True,
  weight_decay: NonNegative = 0.0,
) -> optax.GradientTransformation:
  """adamw's direction u of every tensor times ||p|| / ||u||, or times 1 where either norm is 0. You
  et al. 2020, algorithm 2 with phi the identity, of the tensors whose decay multiplier is not 0
  (google-research/albert lamb_optimizer.py, MLPerf BERT, NVIDIA).

  Args:
    b1, b2: shares of the moments m and v that a step keeps.
    eps: added to sqrt(v).
    bias_correction: of the moments.
    weight_decay: multiplied by the learning rate.
  """
  adam = adamw(
    leaves, b1=b1, b2=b2, eps=eps, bias_correction=bias_correction, weight_decay=weight_decay
  )
  ratio = leaves.per_tensor(optax.scale_by_trust_ratio())
  decayed = jax.tree.map(lambda v: v != 0, leaves.decay)  # single layers of a stack, perhaps

  def update(updates, state, params=None):
    changed, state = ratio.update(updates, state, params)
    return jax.tree.map(jnp.where, decayed, changed, updates), state

  return optax.chain(adam, optax.GradientTransformation(ratio.init, update))


DIRECTION = lamb
