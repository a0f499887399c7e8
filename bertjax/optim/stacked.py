"""optax transformations that treat a stack of layers as one tensor per layer."""

from typing import Any

import jax
import jax.numpy as jnp
import optax


def per_tensor(tx: optax.GradientTransformation, stacked: Any) -> optax.GradientTransformation:
  """`tx` on every tensor by itself: norms, factors and clips never mix the layers of a stack.

  Args:
    tx: a transformation that takes a single array as its tree.
    stacked: tree like the parameters; True where the first axis of a leaf counts layers.

  Returns:
    A transformation whose state is a tree like the parameters with a state of `tx` at every leaf;
    at a stacked leaf each array of it has the layers in front.
  """

  def mapped(function, stack: bool):
    return jax.vmap(function) if stack else function

  def init(params):
    return jax.tree.map(lambda stack, p: mapped(tx.init, stack)(p), stacked, params)

  def update(updates, state, params=None):
    both = jax.tree.map(
      lambda stack, *arrays: mapped(tx.update, stack)(*arrays), stacked, updates, state, params
    )
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
