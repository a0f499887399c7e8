"""The last layers of a warm start made anew: `config.fresh_layers`.

Zhang et al. 2021 (Revisiting Few-sample BERT Fine-tuning, section 5): what the last layers and the
pooler learned in pretraining may be in the way of a task with few examples. They keep the values
that the seed gives them, and all else comes from `config.init_from`.
"""

from typing import Any

import jax
import jax.numpy as jnp

from bertjax import sharding
from bertjax.errors import UserError
from bertjax.optim.param_rules import LAYERS

KEY = 'config.fresh_layers'
SHARED, POOLER = 'shared', 'pooler'


def check(count: int, init_from: Any, params: Any) -> None:
  """Refuses what cannot be made anew, before anything is read: nothing is taken from elsewhere,
  layers share parameters, or there are fewer layers. The keys are of the config; parameters may be
  shapes."""
  if not count:
    return
  if not init_from:
    raise UserError(
      f'{KEY}={count}: expected config.init_from, from which all other layers come, got none; '
      'give it, or set the number to 0: without it every parameter is made anew'
    )
  paths = {sharding.leaf_path(path): x for path, x in jax.tree_util.tree_leaves_with_path(params)}
  stacks = [x.shape[0] for path, x in paths.items() if _has(path, LAYERS)]
  if not stacks or any(_has(path, SHARED) for path in paths):
    raise UserError(
      f'{KEY}={count}: expected layers with parameters of their own, got a model whose layers '
      'share them: set it to 0'
    )
  if count > min(stacks):
    raise UserError(
      f'{KEY}: expected at most {min(stacks)}, the number of layers, got {count}: lower it'
    )


def kept(made: Any, loaded: Any, count: int) -> tuple[Any, list[str]]:
  """Returns the loaded variables, with the last `count` layers and the pooler as they were `made`
  from the seed, and what is worth saying."""
  if not count:
    return loaded, []

  def choose(path, new, old):
    name = sharding.leaf_path(path)
    if _has(name, POOLER):
      return new
    return jnp.concatenate([old[:-count], new[-count:]]) if _has(name, LAYERS) else old

  merge = lambda new, old: jax.tree_util.tree_map_with_path(choose, new, old)
  shardings = jax.tree.map(lambda x: x.sharding, loaded['params'])
  params = jax.jit(merge, out_shardings=shardings)(made['params'], loaded['params'])
  has_pooler = POOLER in params
  last = 'the last layer' if count == 1 else f'the last {count} layers'
  said = f'Made anew: {last}{" and the pooler" if has_pooler else ""} ({KEY}={count})'
  return dict(loaded, params=params), [said]


def _has(path: str, part: str) -> bool:
  return part in path.split('/')
