"""Fields of the config read as an options class, where each has its type, range and meaning.

An options class, or a function, has an annotated keyword argument for every field: `bool`, `int`,
`float`, `str`, `Literal['a', 'b']`, a tuple, `X | None`, or one of the ranges of field_types.py
(`Count`, `Share`, ..). Its docstring says what each means, under Attributes or Args.
"""

import dataclasses
import functools
import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from ml_collections import ConfigDict

from bertjax import removed
from bertjax.errors import UserError, choose
from bertjax.field_types import Bounds

Options = TypeVar('Options')
_FIELD = re.compile(r'^ {2}([\w, ]+): (.*(?:\n {4,}.*)*)', re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class NoOptions:
  """Nothing is to be chosen."""


class Field(NamedTuple):
  """One field."""

  kind: Any  # its annotation
  required: bool  # whether it must be given
  help: str  # its line in the docstring of its class, '' if none
  default: Any = None  # its value where it need not be given


@functools.cache
def fields_of(options: Callable[..., Any]) -> dict[str, Field]:
  """Name -> field of an options class or function; the positional arguments of a function are not
  its fields. The dict is shared: `|` makes another."""
  hints = typing.get_type_hints(options, include_extras=True)
  helps: dict[str, str] = {}
  named = getattr(options, 'module', options)  # a model's fields, see `basic.options_of`
  for holder in reversed(inspect.getmro(named) if inspect.isclass(named) else (named,)):
    helps |= _helps(inspect.cleandoc(holder.__doc__ or ''))
  is_class = inspect.isclass(options)
  return {
    p.name: Field(
      hints[p.name],
      p.default is p.empty,
      helps.get(p.name, ''),
      None if p.default is p.empty else p.default,
    )
    for p in inspect.signature(options).parameters.values()
    if p.name in hints and (is_class or p.kind is p.KEYWORD_ONLY)
  }


def read(options: Callable[..., Options], given: Mapping[str, Any], key: str) -> Options:
  """Returns the options, of a class or a function's keyword arguments, that some fields of the
  config make. Raises UserError as `check_fields` does; `key` is of the config."""
  return options(**check_fields(fields_of(options), given, key))


def check_fields(known: Mapping[str, Field], given: Mapping[str, Any], key: str) -> dict[str, Any]:
  """Returns the fields, each of its type, with the defaults of those that are not given: integers
  where floats are expected become floats. Raises UserError: a field that is not known (the nearest
  is named), one that is lacking, or a value of another type or out of range."""
  for name in given:
    if name not in known:
      removed.refuse(f'{key.partition(" ")[0]}.{name}')  # what is chosen stands behind it
      if not known:
        raise UserError(f'{key} takes no fields, got {name}: remove it')
      choose(name, known, f'fields of {key}')
  lacking = [name for name, field in known.items() if field.required and name not in given]
  if lacking:
    raise UserError(f'{key} lacks {", ".join(lacking)}; it has {", ".join(sorted(given))}')
  defaults = {name: field.default for name, field in known.items() if not field.required}
  return defaults | {
    name: convert(known[name].kind, value, f'{key}.{name}') for name, value in given.items()
  }


def override(config: Any, changes: Any, where: str) -> None:
  """Changes fields of a ConfigDict, such as `config.data`, in place; a dict with another `name`, or
  `type`, replaces the whole of it, since the fields of the one thing say nothing of the other.
  Raises UserError if there is no such field; the nearest is named, and the key `where`."""
  for key, value in changes.items():
    choose(key, config, f'fields of {where}')
    nested = isinstance(value, ConfigDict) and isinstance(config[key], ConfigDict)
    kinds = [by for by in ('name', 'type') if nested and by in value]
    if nested and all(value[by] == config[key].get(by) for by in kinds):
      override(config[key], value, f'{where}.{key}')
    else:
      config[key] = value


def convert(kind: Any, value: Any, key: str) -> Any:
  """Returns the value as this type. Raises UserError if it is of another type or out of range; says
  which is expected."""
  found = _convert(kind, value)
  if found is _WRONG:
    raise UserError(f'{key}: expected {describe(kind)}, got {value!r}')
  return found


def describe(kind: Any) -> str:
  """Returns a type for people: 'int >= 1', "one of 'a', 'b'", 'float or None'."""
  base, bounds = _split(kind)
  if bounds is not None:
    return f'{describe(base)} {bounds}'
  origin, arguments = typing.get_origin(base), typing.get_args(base)
  if origin is Mapping:
    return 'a dict of fields'
  if origin is typing.Literal:
    return 'one of ' + ', '.join(map(repr, arguments))
  if origin in (typing.Union, types.UnionType):
    return ' or '.join('None' if a is type(None) else describe(a) for a in arguments)
  if origin is tuple and arguments:
    if arguments[-1] is Ellipsis:
      return f'a tuple of {describe(arguments[0])}'
    return f'({", ".join(map(describe, arguments))})'
  return getattr(base, '__name__', str(base)) if base is not Any else 'anything'


def kinds_of(kind: Any) -> list[type]:
  """Returns the Python types of a field's values but None: [str, tuple] of `str | tuple[int]`."""
  base, _ = _split(kind)
  origin, arguments = typing.get_origin(base), typing.get_args(base)
  if origin in (typing.Union, types.UnionType):
    found = [t for a in arguments if a is not type(None) for t in kinds_of(a)]
  elif origin is typing.Literal:
    found = [type(a) for a in arguments]
  else:
    found = [origin or base]
  return list(dict.fromkeys(found))


_WRONG = object()


def _convert(kind: Any, value: Any) -> Any:
  base, bounds = _split(kind)
  origin, arguments = typing.get_origin(base), typing.get_args(base)
  if bounds is not None:
    found = _convert(base, value)
    return found if found is not _WRONG and bounds.hold(found) else _WRONG
  if base is Any:
    return value
  if origin is Mapping:  # a ConfigDict is none to isinstance
    return value if hasattr(value, 'items') else _WRONG
  if origin is typing.Literal:
    return next((a for a in arguments if type(a) is type(value) and a == value), _WRONG)
  if origin in (typing.Union, types.UnionType):
    tried = (_convert(argument, value) for argument in arguments)
    return next((found for found in tried if found is not _WRONG), _WRONG)
  if base is type(None):
    return None if value is None else _WRONG
  if origin is tuple:
    return _convert_tuple(arguments, value)
  if base is float:
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if numeric and math.isfinite(value) else _WRONG
  return value if type(value) is base or (base is not int and isinstance(value, base)) else _WRONG


def _convert_tuple(arguments: tuple[Any, ...], value: Any) -> Any:
  if not isinstance(value, tuple | list):
    return _WRONG
  if arguments[-1] is Ellipsis:
    arguments = arguments[:1] * len(value)
  if len(arguments) != len(value):
    return _WRONG
  found = tuple(_convert(a, v) for a, v in zip(arguments, value, strict=True))
  return _WRONG if any(v is _WRONG for v in found) else found


def _split(kind: Any) -> tuple[Any, Bounds | None]:
  """Returns the type without its bounds, and these."""
  if typing.get_origin(kind) is not typing.Annotated:
    return kind, None
  base, *notes = typing.get_args(kind)
  return base, next((note for note in notes if isinstance(note, Bounds)), None)


def _helps(doc: str) -> dict[str, str]:
  """Name -> text, of the Attributes or Args of a docstring."""
  _, _, section = doc.partition('Attributes:') if 'Attributes:' in doc else doc.partition('Args:')
  found = {}
  for match in _FIELD.finditer(section.split('\n\n')[0]):
    for name in match[1].split(','):
      found[name.strip()] = ' '.join(match[2].split())
  return found
