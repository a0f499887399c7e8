"""The mean of the parameters of all steps since some evaluation: NT-ASGD (Merity et al. 2017).

The steps are those that they are without it. From the evaluation on that `watch/patience.py` finds
to be no better, the mean is kept in the optimizer's state; it is the mean that is judged, and
checkpoints have it where readers look for the parameters.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax


class Averaged(NamedTuple):
  """The mean, the last entry of the optimizer's state."""

  count: Any  # int32, the steps that were averaged; -1: it has not begun
  params: Any  # as they were at first, until it has


def average() -> optax.GradientTransformation:
  """Averages what the updates before it make of the parameters, as torch.optim.ASGD(t0=0) does: the
  first step is in the mean until the second has come."""

  def init(params: Any) -> Averaged:
    return Averaged(jnp.int32(-1), jax.tree.map(jnp.copy, params))

  def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Averaged]:
    begun = state.count >= 0
    share = 1 / jnp.maximum(state.count, 1).astype(jnp.float32)

    def mean(old: Any, param: Any, update: Any) -> Any:
      new = param + update
      moved = jnp.where(share == 1, new, old + (new - old) * share.astype(old.dtype))
      return jnp.where(begun, moved, old)

    averaged = jax.tree.map(mean, state.params, params, updates)
    return updates, Averaged(state.count + begun, averaged)

  return optax.GradientTransformation(init, update)


def begun(state: Any) -> Any:
  """Returns a `train.step.State` whose next steps are averaged, as may have begun before."""
  *others, averaged = state.opt_state
  if int(averaged.count) >= 0:
    return state
  count = jax.device_put(np.int32(0), averaged.count.sharding)
  return state._replace(opt_state=(*others, averaged._replace(count=count)))


def exchanged(state: Any) -> Any:
  """Returns a `train.step.State` with the mean, where there is one, in the place of the parameters,
  and these in its place; of a state of shapes nothing changes. It undoes itself."""
  *others, last = state.opt_state
  shapes = isinstance(state.step, jax.ShapeDtypeStruct)
  if not isinstance(last, Averaged) or shapes or int(last.count) < 1:
    return state
  variables = dict(state.variables, params=last.params)
  opt_state = (*others, last._replace(params=state.variables['params']))
  return state._replace(variables=variables, opt_state=opt_state)
