"""Warm starts: parameters copied from other runs' checkpoints into a fresh state.

`config.init_from` is a tuple of (checkpoint, from path, to path, layers). Everything, as it is:

  (('runs/bert', 'params', 'params', ()),)

A student that takes every second layer of its teacher:

  (('runs/bert', 'params/encoder', 'params/encoder', (0, 2, 4, 6, 8, 10)),)

`checkpoint` is a run's workdir (its newest intact checkpoint) or one checkpoint's directory. Paths
name a subtree; `layers` picks from the leading axis of leaves under 'layers'. Parameters only:
optimizer state and step start afresh.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from bertjax.checkpoint import checkpoints as checkpoints_lib
from bertjax.errors import UserError


def _subtree(tree: Any, path: str, what: str) -> Any:
  for depth, key in enumerate(path.split('/')):
    if not isinstance(tree, Mapping) or key not in tree:
      found = sorted(tree) if isinstance(tree, Mapping) else 'an array'
      above = '/'.join(path.split('/')[:depth]) or 'the top'
      raise UserError(f'init_from: {what} has no {path!r}; {above} holds {found}')
    tree = tree[key]
  return tree


def _replaced(tree: Mapping, path: Sequence[str], value: Any) -> Any:
  if not path:
    return value
  return dict(tree, **{path[0]: _replaced(tree[path[0]], path[1:], value)})


def _take(source: Any, target: Any, layers: Sequence[int], where: str) -> Any:
  """Leaves of source shaped and placed like those of target."""
  if jax.tree.structure(source) != jax.tree.structure(target):
    raise UserError(
      f'init_from: {where} holds other parameters than the model; expected '
      f'{jax.tree.structure(target)}, got {jax.tree.structure(source)}'
    )

  def copy(path, new, old):
    name = jax.tree_util.keystr(path)
    if layers and "['layers']" in name:
      new = new[np.asarray(layers)]
    if new.shape != old.shape:
      raise UserError(f'init_from: {where}{name} has shape {new.shape}, the model {old.shape}')
    return jax.device_put(np.asarray(new, old.dtype), old.sharding)

  return jax.tree_util.tree_map_with_path(copy, source, target)


def apply(variables: Any, entries: Sequence[tuple]) -> Any:
  """Variables with the named subtrees replaced.

  Args:
    variables: collections of arrays.
    entries: `config.init_from`.

  Raises:
    UserError: a path, structure or shape that does not match; nothing is changed.
  """
  for source_path, source_name, target_name, layers in entries:
    source = _subtree(checkpoints_lib.read_variables(source_path), source_name, source_path)
    target = _subtree(variables, target_name, 'the model')
    new = _take(source, target, layers, f'{source_path}:{source_name}')
    variables = _replaced(variables, target_name.split('/'), new)
  return variables
