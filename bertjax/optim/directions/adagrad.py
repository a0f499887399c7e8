"""Adagrad: every entry's rate falls with the sum of its squared gradients."""

import jax
import jax.numpy as jnp
import optax

from bertjax.field_types import NonNegative, Positive
from bertjax.optim.leaves import Leaves


def adagrad(
  leaves: Leaves, *, accumulator: Positive, weight_decay: NonNegative = 0.0
) -> optax.GradientTransformation:
  """g / sqrt(a) with a += g^2 first, plus weight_decay * p.

  Duchi et al. 2011, as tf.train.AdagradOptimizer has it: nothing is added to the root, which the
  first value of a keeps from 0.

  Args:
    leaves: the parameters.
    accumulator: a before the first step. The scale of the gradients matters beside it.
    weight_decay: multiplied by the learning rate.
  """

  def init(params):
    full = lambda p: jnp.full_like(p, accumulator)
    return optax.ScaleByRssState(sum_of_squares=jax.tree.map(full, params))

  def update(updates, state, params=None):
    squares = jax.tree.map(lambda a, g: a + jnp.square(g), state.sum_of_squares, updates)
    found = jax.tree.map(lambda g, a: g * jax.lax.rsqrt(a), updates, squares)
    return found, optax.ScaleByRssState(sum_of_squares=squares)

  return optax.chain(optax.GradientTransformation(init, update), leaves.add_decay(weight_decay))


DIRECTION = adagrad
SPARSE = True
