"""Adagrad: every entry's rate falls with the sum of its squared gradients."""

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
    accumulator: a before the first step. The scale of the gradients matters beside it.
    weight_decay: multiplied by the learning rate.
  """
  return optax.chain(optax.scale_by_rss(accumulator, eps=0.0), leaves.add_decay(weight_decay))


DIRECTION = adagrad
SPARSE = True
