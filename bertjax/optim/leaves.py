"""The parameters as a direction sees them: their logical axes, stacks, and weight decay.

A module of `directions/` exports DIRECTION, a function of `Leaves` whose keyword arguments are its
fields of `config.optimizer`; it returns an optax transformation from gradients to what the learning
rate is multiplied by, weight decay included. SPARSE = True beside it says that without weight decay
an entry whose gradient is 0 stays as it is, and its state too, and that no entry looks at others.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from bertjax.optim import param_rules

WHAT = 'config.optimizer'
HEADS = ('heads', 'head')  # two logical axes that are one axis of a matrix


class Leaves(NamedTuple):
  """The parameters as a direction sees them."""

  params: Any  # tree of arrays or shapes
  axes: Any  # the same tree with a tuple of logical axis names at every leaf
  # the same tree with the multipliers of weight decay, which broadcast against their leaf
  decay: Any

  @property
  def is_stack(self) -> Any:
    """The same tree with True where the first axis of a leaf counts layers."""
    return jax.tree.map(lambda _, axes: param_rules.is_stack(axes), self.params, self.axes)

  def map_tensors(self, function: Callable[..., Any], *trees: Any) -> Any:
    """Returns a function of the arrays of every tensor by itself, a stack being one tensor per
    layer. Trees are like the parameters, or have a tree of arrays at each of their leaves."""
    apply = lambda stack, *arrays: (jax.vmap(function) if stack else function)(*arrays)
    return jax.tree.map(apply, self.is_stack, *trees)

  def per_tensor(self, tx: optax.GradientTransformation) -> optax.GradientTransformation:
    """Applies `tx`, of a single array, to every tensor by itself: norms, factors and clips never
    mix the layers of a stack. At a stacked leaf each array of the state has the layers in front."""

    def update(updates, state, params=None):
      both = self.map_tensors(tx.update, updates, state, params)
      take = lambda i: jax.tree.map(lambda _, pair: pair[i], self.is_stack, both)
      return take(0), take(1)

    return optax.GradientTransformation(lambda params: self.map_tensors(tx.init, params), update)

  def resolve(self, rules: param_rules.Rules, key: str) -> Any:
    """Returns the value that rules give every tensor, as `param_rules.resolve`, by their key."""
    return param_rules.resolve(rules, self.params, self.axes, f'{WHAT}.{key}')

  def add_decay(self, weight_decay: float) -> optax.GradientTransformation:
    """u + weight_decay * decay * p."""
    rate = jax.tree.map(lambda d: np.float32(weight_decay) * d, self.decay)
    return optax.stateless(
      lambda updates, params: jax.tree.map(lambda u, p, r: u + r * p, updates, params, rate)
    )
