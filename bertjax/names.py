"""Things chosen by name: a module of a package, one of a list; a wrong name is met with the nearest."""

import difflib
import importlib
import pkgutil
from collections.abc import Iterable
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


def load(package: str, name: str, what: str) -> ModuleType:
  """The module `package.name`; a new file in the package is a new choice, and no list is edited.

  Raises:
    ValueError: no such module.
  """
  parent = importlib.import_module(package)
  found = [m.name for m in pkgutil.iter_modules(parent.__path__)]
  return importlib.import_module(f'{package}.{choose(name, found, what)}')
