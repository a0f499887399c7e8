"""The one door of JSON that others may have written, whose faults are named."""

import json
from collections.abc import Mapping
from typing import Any

from bertjax.errors import UserError

_NAMES = {dict: 'a JSON object', list: 'a JSON list'}


def loads(text: str | bytes, **options: Any) -> Any:
  """Returns a JSON value; the options go to `json.loads`. Raises ValueError if it is none, or is
  nested deeper than Python reads."""
  try:
    return json.loads(text, **options)
  except RecursionError as error:
    raise ValueError('nested too deep') from error


def check(path: Any, found: Any, kinds: Mapping[str, Any]) -> None:
  """Raises UserError if a field of a JSON object that has one of these names is of another kind;
  null is absent."""
  for key, kind in kinds.items():
    if not isinstance(found.get(key), kind | None):
      raise UserError(
        f'{path}: {key}: expected {getattr(kind, "__name__", kind)}, got {found[key]!r:.60}'
      )


def read(path: Any, kind: type = dict, remedy: str = '') -> Any:
  """Returns the JSON value of a file. Raises UserError, which ends with the remedy, if it holds
  none, or one of another kind, dict or list."""
  try:
    found = loads(path.read_bytes())
  except ValueError as error:
    raise UserError(f'{path}: expected {_NAMES[kind]}, got no JSON ({error}){remedy}') from error
  if not isinstance(found, kind):
    got = type(found).__name__
    raise UserError(f'{path}: expected {_NAMES[kind]}, got {got}{remedy}')
  return found
