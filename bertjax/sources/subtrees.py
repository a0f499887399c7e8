"""Subtrees of parameters put in the place of others: which layers, and which rows of words."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

from bertjax import sharding
from bertjax.errors import UserError


class Rows(NamedTuple):
  """The rows of words that move from a table to another."""

  # here, there: ids of the pieces that both vocabularies have
  here: np.ndarray
  there: np.ndarray
  new: np.ndarray  # ids here of pieces that they lack, which begin as the mean of all rows there
  size: int  # of the vocabulary there


def find(tree: Any, path: str, what: str) -> Any:
  """Returns the subtree of nested mappings, `what` in messages, at a path as 'params/encoder'."""
  for depth, key in enumerate(path.split('/')):
    if not isinstance(tree, Mapping) or key not in tree:
      found = sorted(tree) if isinstance(tree, Mapping) else 'an array'
      above = '/'.join(path.split('/')[:depth]) or 'the top'
      raise UserError(f'init_from: {what} has no {path!r}; {above} holds {found}')
    tree = tree[key]
  return tree


def replaced(tree: Mapping, path: Sequence[str], value: Any) -> Any:
  """Returns the tree with a value in the place of the subtree at a path."""
  if not path:
    return value
  return dict(tree, **{path[0]: replaced(tree[path[0]], path[1:], value)})


def taken(source: Any, target: Any, layers: Sequence[int], where: str, rows: Rows | None) -> Any:
  """Returns leaves of source shaped and placed like those of target, of one structure. `layers`
  picks from the leading axis of leaves under 'layers', () all; `where` names the source and its
  path, which tells words; `rows` are those of words that move, None all. UserError: another
  structure or shape."""
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
      theirs = np.asarray(new)[: rows.size]
      moved[rows.here], moved[rows.new] = theirs[rows.there], theirs.mean(0)
      new = moved
    if new.shape != old.shape:
      raise UserError(f'init_from: {where}{name} has shape {new.shape}, the model {old.shape}')
    return sharding.put_whole(np.asarray(new, old.dtype), old.sharding)

  return jax.tree_util.tree_map_with_path(copy, source, target)


def _of_words(name: str) -> bool:
  """Returns whether a leaf has one row per id: the word table, and the bias of its head."""
  return name.endswith((':word', "['word']", ":mlm['bias']", ":head['bias']", ":boundary['bias']"))
