"""Norms of the parameters, their gradients and their updates, layer by layer."""

import collections
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bertjax import sharding
from bertjax.optim import param_rules
from bertjax.types import Array

Norms = dict[str, dict[str, Array]]  # kind -> path of a leaf -> its norm, one a layer of a stack
_LAYER = re.compile(rf'(.*\b{param_rules.LAYERS}/\d+)/.*')


def of(axes: Any) -> Callable[..., Norms]:
  """Returns the norms of trees, for use within a compiled step: a function of trees like the
  parameters, given by keyword: kind -> path -> float32 norm, a scalar, or [layers] of a leaf that
  is a stack by its logical axes."""

  def norms(**trees: Any) -> Norms:
    found: Norms = {}
    for kind, tree in trees.items():
      leaves, treedef = jax.tree_util.tree_flatten_with_path(tree)
      named = zip(leaves, treedef.flatten_up_to(axes), strict=True)
      found[kind] = {sharding.leaf_path(path): _norm(leaf, names) for (path, leaf), names in named}
    return found

  return norms


def by_layer(norms: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
  """Returns layer -> kind -> norm over all tensors of the layer, of what a function of `of`
  returned. A layer is one of a stack, as in 'encoder/layers/7', or the module of a tensor outside
  of one."""
  squares: dict[str, dict[str, float]] = collections.defaultdict(dict)
  for kind, leaves in jax.device_get(norms).items():
    for path, norm in leaves.items():
      values = np.atleast_1d(np.asarray(norm, np.float64))
      axes = (param_rules.LAYERS,) * np.ndim(norm)
      for name, value in zip(
        param_rules.layer_paths(path, axes, values.shape), values, strict=True
      ):
        match = _LAYER.fullmatch(name)
        layer = match[1] if match else name.rpartition('/')[0] or name
        squares[layer][kind] = squares[layer].get(kind, 0.0) + float(value) ** 2
  return {layer: {k: v**0.5 for k, v in kinds.items()} for layer, kinds in squares.items()}


def _norm(leaf: Array, names: tuple[str, ...]) -> Array:
  own = tuple(range(int(param_rules.is_stack(names)), leaf.ndim))
  return jnp.sqrt(jnp.sum(jnp.square(leaf.astype(jnp.float32)), own))
