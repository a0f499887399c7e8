"""Nested dicts as one, their keys joined by dots or another mark, and back."""

from collections.abc import Mapping
from typing import Any


def flat(tree: Mapping[str, Any], prefix: str = '', mark: str = '.') -> dict[str, Any]:
  """Dotted key -> value; an empty dict is a value."""
  found: dict[str, Any] = {}
  for key, value in tree.items():
    if isinstance(value, Mapping) and value:
      found |= flat(value, f'{prefix}{key}{mark}', mark)
    else:
      found[prefix + key] = value
  return found


def nested(values: Mapping[str, Any], mark: str = '.') -> dict[str, Any]:
  """Returns the inverse of `flat`."""
  tree: dict[str, Any] = {}
  for key, value in values.items():
    *parents, last = key.split(mark)
    place = tree
    for parent in parents:
      place = place.setdefault(parent, {})
    place[last] = value
  return tree
