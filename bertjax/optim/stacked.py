"""optax transformations that treat a stack of layers as one tensor per layer."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax


def map_tensors(function: Callable[..., Any], stacked: Any, *trees: Any) -> Any:
  """Returns the function of the arrays of every tensor by itself.

  Args:
    function: of as many arrays (or trees of them) as there are trees.
    stacked: tree like the parameters; True where the first axis of a leaf counts layers.
    trees: like the parameters, or with a tree of arrays at each of their leaves.
  """
  apply = lambda stack, *arrays: (jax.vmap(function) if stack else function)(*arrays)
  return jax.tree.map(apply, stacked, *trees)


def per_tensor(tx: optax.GradientTransformation, stacked: Any) -> optax.GradientTransformation:
  """`tx` on every tensor by itself: norms, factors and clips never mix the layers of a stack.
  Returns a transformation whose state is a tree like the parameters with a state of `tx` at every
  leaf; at a stacked leaf each array of it has the layers in front.

  Args:
    tx: a transformation that takes a single array as its tree.
    stacked: as in `map_tensors`.
  """

  def init(params):
    return map_tensors(tx.init, stacked, params)

  def update(updates, state, params=None):
    both = map_tensors(tx.update, stacked, updates, state, params)
    take = lambda i: jax.tree.map(lambda _, pair: pair[i], stacked, both)
    return take(0), take(1)

  return optax.GradientTransformation(init, update)


def only(tx: optax.GradientTransformation, chosen: Any) -> optax.GradientTransformation:
  """`tx` where `chosen` is True, the unchanged update elsewhere.

  Args:
    tx: any transformation.
    chosen: tree like the parameters of booleans that broadcast against their leaf, so that it may
      choose single layers of a stack, which `optax.masked` cannot.
  """

  def update(updates, state, params=None):
    changed, state = tx.update(updates, state, params)
    return jax.tree.map(jnp.where, chosen, changed, updates), state

  return optax.GradientTransformation(tx.init, update)
