"""Things chosen by name: each is a module, and the folder it lies in is the list of choices.

A name with a dot is a module of the user's own, e.g. `my_project.my_masking`.
"""

import functools
import importlib
import pkgutil
from types import ModuleType

from bertjax.errors import UserError, choose


@functools.cache
def names_in(package: str) -> tuple[str, ...]:
  """The choices of a package, e.g. 'bertjax.data.plans': the modules that lie directly in it.

  What several of them share lies in a folder below it, or elsewhere.
  """
  path = importlib.import_module(package).__path__
  return tuple(sorted(m.name for m in pkgutil.iter_modules(path) if not m.ispkg))


def find(package: str, name: str, key: str) -> ModuleType:
  """The module `package.name`.

  Args:
    package: whose modules are the choices.
    name: of one of them, or with a dot that of any module.
    key: of the config, for the message.

  Raises:
    UserError: there is no such module; the nearest is named.
  """
  if '.' in str(name):
    try:
      return importlib.import_module(name)
    except ModuleNotFoundError as error:
      raise UserError(
        f'{key}: expected a module that Python finds from here, got {name!r}: {error}'
      ) from error
  return importlib.import_module(f'{package}.{choose(name, names_in(package), key)}')
