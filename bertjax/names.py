"""Things chosen by name: a module, one of a list, fields; a wrong name is met with the nearest."""

import difflib
import functools
import importlib
import inspect
import pathlib
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType


def choose(name: str, options: Iterable[str], what: str) -> str:
  """`name`, if it is one of the options.

  Raises:
    ValueError: it is not; says which options there are and which is nearest.
  """
  options = sorted(options)
  if name in options:
    return name
  near = difflib.get_close_matches(name, options, 1)
  hint = f'; did you mean {near[0]!r}?' if near else ''
  raise ValueError(f'{what}: expected one of {", ".join(options)}, got {name!r}{hint}')


@functools.cache
def load(package: str, name: str, function: str, what: str) -> ModuleType:
  """The module `package.name`; a new file in the package is a new choice, and no list is edited.

  Args:
    package: e.g. 'bertjax.objectives'.
    name: of one of its modules.
    function: which a module must define to be a choice.
    what: the key of the config, for the message.

  Raises:
    ValueError: no such module, or it lacks the function.
  """
  folder = pathlib.Path(importlib.import_module(package).__path__[0])
  define = f'\ndef {function}('
  found = [f.stem for f in folder.glob('*.py') if define in f.read_text(encoding='utf-8')]
  return importlib.import_module(f'{package}.{choose(name, found, what)}')


def fields_of(function: Callable) -> dict[str, bool]:
  """The keyword-only arguments of a function: name -> whether it may be left out."""
  parameters = inspect.signature(function).parameters.values()
  return {p.name: p.default is not p.empty for p in parameters if p.kind is p.KEYWORD_ONLY}


def check_fields(fields: Iterable[str], known: Mapping[str, bool], what: str) -> None:
  """Refuses the fields of a config that are not those a function takes.

  Raises:
    ValueError: a field that is not known (the nearest is named), or one that is lacking.
  """
  fields = list(fields)
  for field in fields:
    choose(field, known, f'fields of {what}')
  lacking = [name for name, optional in known.items() if not optional and name not in fields]
  if lacking:
    raise ValueError(f'{what} lacks {", ".join(lacking)}; it has {", ".join(sorted(fields))}')
