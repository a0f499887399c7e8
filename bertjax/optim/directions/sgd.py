"""Stochastic gradient descent."""

import optax

from bertjax.field_types import NonNegative
from bertjax.optim.leaves import Leaves


def sgd(leaves: Leaves, *, weight_decay: NonNegative = 0.0) -> optax.GradientTransformation:
  """g + weight_decay * p (torch.optim.SGD without momentum).

  Args:
    weight_decay: multiplied by the learning rate.
  """
  return leaves.add_decay(weight_decay)


DIRECTION = sgd
