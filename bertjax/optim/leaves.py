"""The parameters as a direction sees them: their logical axes, stacks, and weight decay.

A module of `directions/` exports DIRECTION, a function of `Leaves` whose keyword arguments are its
fields of `config.optimizer`; it returns an optax transformation from gradients to what the learning
rate is multiplied by, weight decay included.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from bertjax.optim import param_rules, stacked

WHAT = 'config.optimizer'


class Leaves(NamedTuple):
  """The parameters as a direction sees them."""

  params: Any  # tree of arrays or shapes
  axes: Any  # the same tree with a tuple of logical axis names at every leaf
  # the same tree with the multipliers of weight decay, which broadcast against their leaf
  decay: Any

  @classmethod
  def make(cls, params: Any, axes: Any, decay: param_rules.Rules) -> 'Leaves':
    """Returns the leaves under the rules of `config.optimizer.decay`."""
    return cls(params, axes, param_rules.resolve(decay, params, axes, f'{WHAT}.decay'))

  @property
  def is_stack(self) -> Any:
    """The same tree with True where the first axis of a leaf counts layers."""
    return jax.tree.map(lambda _, axes: param_rules.is_stack(axes), self.params, self.axes)

  def per_tensor(self, tx: optax.GradientTransformation) -> optax.GradientTransformation:
    """`tx` on every tensor by itself, a stack being one tensor per layer."""
    return stacked.per_tensor(tx, self.is_stack)

  def map_tensors(self, function: Callable[..., Any], *trees: Any) -> Any:
    """Returns a function of the arrays of every tensor by itself, likewise."""
    return stacked.map_tensors(function, self.is_stack, *trees)

  def resolve(self, rules: param_rules.Rules, key: str) -> Any:
    """The value that rules give every tensor, see `param_rules.resolve`; `key` is their field."""
    return param_rules.resolve(rules, self.params, self.axes, f'{WHAT}.{key}')

  def add_decay(self, weight_decay: float) -> optax.GradientTransformation:
    """u + weight_decay * decay * p."""
    rate = jax.tree.map(lambda d: np.float32(weight_decay) * d, self.decay)
    return optax.stateless(
      lambda updates, params: jax.tree.map(lambda u, p, r: u + r * p, updates, params, rate)
    )
