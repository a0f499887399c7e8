"""Ordered regular expressions over parameter paths: the first that matches a tensor decides.

A path is 'a/b/c'. A leaf whose first logical axis is 'layers' is a stack, and the rules see one
tensor per layer: after the component 'layers' comes the layer's number, as in
'encoder/layers/7/attention/query/kernel', so that a rule may name single layers.
"""

import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from absl import logging

from bertjax import sharding
from bertjax.errors import UserError

LAYERS = 'layers'

Rules = Sequence[tuple[str, float]]


def is_stack(axes: tuple) -> bool:
  """Whether a leaf with these logical axes holds one tensor per layer."""
  return axes[:1] == (LAYERS,)


def layer_paths(path: str, axes: tuple, shape: tuple) -> list[str]:
  """The paths of a leaf's tensors: one for each layer of a stack, else its own.

  Raises:
    UserError: a stack whose path does not name 'layers' exactly once.
  """
  if not is_stack(axes):
    return [path]
  parts = path.split('/')
  if parts.count(LAYERS) != 1:
    raise UserError(
      f'{path} has the logical axes {axes}, so its path must have exactly one component '
      f'{LAYERS!r}, which the rules number; name the scanned module {LAYERS!r}'
    )
  where = parts.index(LAYERS) + 1
  return ['/'.join([*parts[:where], str(i), *parts[where:]]) for i in range(shape[0])]


def collapse(paths: Sequence[str]) -> str:
  """Paths for people: 'a/layers/0/b', 'a/layers/1/b', 'c' -> 'a/layers/0-1/b, c'."""
  groups: dict[str, list[int]] = {}
  for path in paths:
    number = re.search(rf'(?<=\b{LAYERS}/)\d+', path)
    key = path if number is None else f'{path[: number.start()]}#{path[number.end() :]}'
    groups.setdefault(key, []).extend([] if number is None else [int(number.group())])
  shown = []
  for key, layers in groups.items():
    run = len(layers) > 1 and layers == list(range(layers[0], layers[-1] + 1))
    text = f'{layers[0]}-{layers[-1]}' if run else ','.join(map(str, layers))
    shown.append(key.replace('#', text))
  return ', '.join(shown)


def resolve(rules: Rules, params: Any, axes: Any, what: str) -> Any:
  """The value that the rules give every tensor; each match is logged.

  Args:
    rules: (pattern, value) pairs in order; a pattern must match the whole path.
    params: tree of arrays or shapes.
    axes: the same tree, with a tuple of logical axis names at every leaf.
    what: the config key, for errors and the log.

  Returns:
    A tree like params of float32 values that broadcast against their leaf: shape (), or
    [layers, 1, ..] for a stack.

  Raises:
    UserError: a tensor that no pattern matches, a pattern other than '.*' that matches nothing
      (a misspelling), or one that is no regular expression.
  """
  leaves, treedef = jax.tree_util.tree_flatten_with_path(params)
  shapes = [leaf.shape for _, leaf in leaves]
  leaf_axes = treedef.flatten_up_to(axes)
  paths = [
    layer_paths(sharding.leaf_path(key), names, shape)
    for (key, _), names, shape in zip(leaves, leaf_axes, shapes, strict=True)
  ]
  decided = _decide(rules, [path for group in paths for path in group], what)

  def values(group: list[str], names: tuple, shape: tuple) -> np.ndarray:
    found = np.array([decided[path] for path in group], np.float32)
    return found.reshape((-1,) + (1,) * (len(shape) - 1)) if is_stack(names) else found[0]

  return treedef.unflatten(map(values, paths, leaf_axes, shapes))


def _decide(rules: Rules, paths: list[str], what: str) -> dict[str, float]:
  """path -> the value of the first rule that matches it; one log line per rule."""
  decided: dict[str, float] = {}
  for pattern, value in rules:
    try:
      matched = [path for path in paths if re.fullmatch(pattern, path)]
    except re.error as error:
      raise UserError(f'{what}: {pattern!r} is not a regular expression: {error}') from error
    if not matched and pattern != '.*':
      raise UserError(
        f'{what}: {pattern!r} matches none of the parameters {collapse(paths)}; '
        'a pattern must match the whole path: correct or remove it'
      )
    new = [path for path in matched if path not in decided]
    decided |= dict.fromkeys(new, float(value))
    shown = collapse(new) if len(new) < len(paths) else 'every parameter'
    logging.info('%s: %r -> %g: %s', what, pattern, value, shown or 'nothing is left to it')
  left = [path for path in paths if path not in decided]
  if left:
    raise UserError(
      f"{what} covers every parameter but {collapse(left)}: end it with a rule for '.*'"
    )
  return decided
