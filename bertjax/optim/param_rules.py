"""Ordered regular expressions over parameter paths: the first that matches a tensor decides.

A path is 'a/b/c'. A leaf whose first logical axis is 'layers' is a stack, and the rules see one
tensor per layer: after the component 'layers' comes the layer's number, as in
'encoder/layers/7/attention/query/kernel', so that a rule may name single layers.
"""

import logging
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from bertjax import sharding
from bertjax.errors import UserError
from bertjax.field_types import NonNegative

LAYERS = 'layers'

Rules = tuple[tuple[str, NonNegative], ...]

SHOWN = 4  # paths in a line of `table`


class Match(NamedTuple):
  """A rule and the tensors that it decides, those that no rule before it matched."""

  # pattern, value: of the rule
  pattern: str
  value: float
  sizes: dict[str, int]  # path of each tensor -> its entries


def is_stack(axes: tuple) -> bool:
  """Returns whether a leaf with these logical axes stacks one tensor per layer."""
  return axes[:1] == (LAYERS,)


def layer_paths(path: str, axes: tuple, shape: tuple) -> list[str]:
  """Returns the paths of a leaf's tensors: one for each layer of a stack, else its own. Raises
  UserError: a stack whose path does not name 'layers' exactly once."""
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
  """Returns the value that the rules give every tensor, float32 in a tree like params, which
  broadcast against their leaf: shape (), or [layers, 1, ..] for a stack by its logical axes. Each
  match is logged under the key `what`; UserError: see `matches`."""
  decided, every = {}, _sizes(params, axes)
  for pattern, value, sizes in matches(rules, params, axes, what):
    decided |= dict.fromkeys(sizes, value)
    whole = len(sizes) == len(every)
    shown = 'every parameter' if whole else collapse([*sizes]) or 'nothing is left to it'
    logging.getLogger(__name__).info('%s: %r -> %g: %s', what, pattern, value, shown)

  def values(key, leaf, names: tuple) -> np.ndarray:
    paths = layer_paths(sharding.leaf_path(key), names, leaf.shape)
    found = np.array([decided[path] for path in paths], np.float32)
    return found.reshape((-1,) + (1,) * (len(leaf.shape) - 1)) if is_stack(names) else found[0]

  return jax.tree_util.tree_map_with_path(values, params, axes)


def matches(rules: Rules, params: Any, axes: Any, what: str) -> list[Match]:
  """Finds the tensors that each rule decides: those that it matches and no rule before it did.
  Arguments as of `resolve`. Raises UserError: a tensor that no pattern matches, a pattern other
  than '.*' that matches nothing (a misspelling), or one that is no regular expression."""
  sizes, found = _sizes(params, axes), []
  left = dict(sizes)
  for pattern, value in rules:
    try:
      matched = [path for path in sizes if re.fullmatch(pattern, path)]
    except re.error as error:
      raise UserError(f'{what}: {pattern!r} is not a regular expression: {error}') from error
    if not matched and pattern != '.*':
      raise UserError(
        f'{what}: {pattern!r} matches none of the parameters {collapse([*sizes])}; '
        'a pattern must match the whole path: correct or remove it, or, where config.init_from '
        'brings a model of another kind, begin with a config file of that kind (configs/finetune)'
      )
    new = {path: left.pop(path) for path in matched if path in left}
    found.append(Match(pattern, float(value), new))
  if left:
    raise UserError(
      f"{what} covers every parameter but {collapse([*left])}: end it with a rule for '.*'"
    )
  return found


def table(rules: Rules, params: Any, axes: Any, what: str) -> str:
  """Returns the rules and what each decides, a line each, or one line where they give every
  parameter the same value; arguments as of `resolve`.

    config.optimizer.decay
      .*bias  ->  0      1,024 parameters  encoder/layers/0-11/ffn_up/bias, mlm/bias
  """
  found = matches(rules, params, axes, what)
  if len({match.value for match in found if match.sizes}) == 1:
    match = next(match for match in found if match.sizes)
    total = sum(sum(m.sizes.values()) for m in found)
    return f'{what}: {match.value:g} for all {total:,} parameters'
  counts = [f'{sum(match.sizes.values()):,}' for match in found]
  pattern_width = max(len(match.pattern) for match in found)
  value_width = max(len(f'{match.value:g}') for match in found)
  count_width = max(map(len, counts))
  lines = [
    f'  {match.pattern:{pattern_width}}  ->  {match.value:<{value_width}g}  '
    f'{count:>{count_width}} parameters  {_some(match)}'
    for match, count in zip(found, counts, strict=True)
  ]
  return '\n'.join([what, *lines])


def _some(match: Match) -> str:
  paths = collapse([*match.sizes]).split(', ')
  more = f', and {len(paths) - SHOWN} more' if len(paths) > SHOWN else ''
  return ', '.join(paths[:SHOWN]) + more if match.sizes else 'nothing is left to it'


def _sizes(params: Any, axes: Any) -> dict[str, int]:
  """path -> entries of every tensor, a stack being one tensor per layer."""
  leaves, treedef = jax.tree_util.tree_flatten_with_path(params)
  found = {}
  for (key, leaf), names in zip(leaves, treedef.flatten_up_to(axes), strict=True):
    paths = layer_paths(sharding.leaf_path(key), names, leaf.shape)
    found |= dict.fromkeys(paths, math.prod(leaf.shape) // len(paths))
  return found
