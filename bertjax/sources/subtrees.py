"""Subtrees of parameters put in the place of others: which layers, and which rows of words."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from bertjax import sharding
from bertjax.errors import UserError

Rows = tuple[np.ndarray, np.ndarray]  # ids here, and of the same pieces there


def find(tree: Any, path: str, what: str) -> Any:
  """The subtree at a path of names.

  Args:
    tree: nested mappings.
    path: 'params/encoder'.
    what: the tree is, for messages.

  Raises:
    UserError: there is none.
  """
  for depth, key in enumerate(path.split('/')):
    if not isinstance(tree, Mapping) or key not in tree:
      found = sorted(tree) if isinstance(tree, Mapping) else 'an array'
      above = '/'.join(path.split('/')[:depth]) or 'the top'
      raise UserError(f'init_from: {what} has no {path!r}; {above} holds {found}')
    tree = tree[key]
  return tree


def replaced(tree: Mapping, path: Sequence[str], value: Any) -> Any:
  """The tree with a value in the place of the subtree at a path."""
  if not path:
    return value
  return dict(tree, **{path[0]: replaced(tree[path[0]], path[1:], value)})


def taken(source: Any, target: Any, layers: Sequence[int], where: str, rows: Rows | None) -> Any:
  """Leaves of source shaped and placed like those of target.

  Args:
    source, target: of the same structure.
    layers: picked from the leading axis of leaves under 'layers'; (): all.
    where: source stands, a name that ends with its path; for messages, and to know words by.
    rows: which rows of words are taken, where; the others stay those of target. None: all.

  Raises:
    UserError: another structure or shape.
  """
  if jax.tree.structure(source) != jax.tree.structure(target):
    raise UserError(
      f'init_from: {where} holds other parameters than the model; expected '
      f'{jax.tree.structure(target)}, got {jax.tree.structure(source)}'
    )

  def copy(path, new, old):
    name = jax.tree_util.keystr(path)
    if layers and "['layers']" in name:
      new = new[np.asarray(layers)]
    if rows is not None and _of_words(f'{where}{name}'):
      moved = np.array(multihost_utils.process_allgather(old, tiled=True))
      moved[rows[0]] = np.asarray(new)[rows[1]]
      new = moved
    if new.shape != old.shape:
      raise UserError(f'init_from: {where}{name} has shape {new.shape}, the model {old.shape}')
    return sharding.put_whole(np.asarray(new, old.dtype), old.sharding)

  return jax.tree_util.tree_map_with_path(copy, source, target)


def _of_words(name: str) -> bool:
  """Returns whether a leaf has one row per id: the word table, and the bias of its head."""
  return name.endswith((':word', "['word']", ":mlm['bias']", ":head['bias']", ":boundary['bias']"))
