"""Things chosen by name: each is a module, and the folder it lies in is the list of choices.

A name with a dot is a module of the user's own, e.g. `my_project.my_masking`. To import it is to
run it: what the command line and config files name is imported, what the config.json of a run alone
names only where the user trusts it (--trust_code), and not from the current directory, which may be
the one that was fetched.
"""

import contextlib
import functools
import importlib
import json
import os
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from bertjax.errors import UserError, choose

# Folder of choices -> the constant that each module of it exports; docs/extending.md.
EXPORTS = {
  'bertjax.models': 'MODEL', 'bertjax.objectives': 'OBJECTIVE', 'bertjax.evals': 'EVALUATOR',
  'bertjax.examples.plans': 'PLAN', 'bertjax.examples.noise': 'MASKING',
  'bertjax.examples.readers': 'READER', 'bertjax.examples.labelled': 'TASK',
  'bertjax.optim.directions': 'DIRECTION', 'bertjax.metrics.trackers': 'TRACKER',
}  # fmt: skip
TRUSTED: set[str] = set()  # modules that directories may name
_OWN: set[str] = set()  # what the user names
_ELSEWHERE: dict[str, str] = {}  # what directories name -> the file that does


@functools.cache
def names_in(package: str) -> tuple[str, ...]:
  """Returns the choices of a package, e.g. 'bertjax.examples.plans': the modules that lie directly
  in it. What several of them share lies in a folder below it, or elsewhere."""
  path = importlib.import_module(package).__path__
  return tuple(sorted(m.name for m in pkgutil.iter_modules(path) if not m.ispkg))


def find(package: str, name: str, key: str) -> ModuleType:
  """Returns the module `package.name`, or with a dot in the name that of any module; `key` of the
  config names it. UserError: no such module, the nearest is named; or as `load`."""
  if '.' in str(name) and not str(name).startswith('bertjax.'):  # a command would define its flags
    module, export = load(str(name), key), EXPORTS.get(package, '')
    if export and not hasattr(module, export):
      raise UserError(f'{key}: expected a module with {export}, got {name!r}, which has none')
    return module
  return importlib.import_module(f'{package}.{choose(name, names_in(package), key)}')


def chosen(package: str, name: str, key: str) -> Any:
  """Returns what that module exports; arguments and errors as of `find`."""
  return getattr(find(package, name, key), EXPORTS[package])


def load(name: str, key: str) -> ModuleType:
  """Imports a module that a config or a flag names. UserError: as `check`, or it is not found."""
  place = check(name, key)
  before = sys.path[:]
  hidden = _here() if place else []
  sys.path[:] = [each for each in before if each not in hidden]
  try:
    if not re.fullmatch(r'[\w-]+(\.[\w-]+)*', name):  # as `_words` knows them
      raise ModuleNotFoundError('that is no name of a module')
    return importlib.import_module(name)
  except ModuleNotFoundError as error:
    where = 'outside of the current directory (PYTHONPATH=DIR adds one)' if place else 'from here'
    raise UserError(
      f'{key}: expected a module that Python finds {where}, got {name!r}: {error}'
    ) from error
  finally:
    for each in hidden:
      sys.path.insert(before.index(each), each)


def own_file(name: str) -> str:
  """Returns the file of a loaded module of the user's own, whose code may change under its name; ''
  of a choice of bertjax."""
  found = None if name.startswith('bertjax.') else sys.modules.get(name)
  return getattr(found, '__file__', None) or ''


def check(name: str, key: str) -> str:
  """Returns the file of a directory that names a module which the user does not; '' if none does.
  UserError: there is one, and the user does not trust the module."""
  place = '' if name in _OWN else _ELSEWHERE.get(name, '')
  if place and name not in TRUSTED:
    raise UserError(
      f'{key}: {place} names the module {name!r}, which would run: expected one that the command '
      f'line or a config file names. If you trust its code give --trust_code={name}'
    )
  return place


@contextlib.contextmanager
def trusting(names: Iterable[str]) -> Iterator[None]:
  """Trusts these modules, too, until the context ends; loads in other threads share them."""
  new = {*names} - TRUSTED
  TRUSTED.update(new)
  try:
    yield
  finally:
    TRUSTED.difference_update(new)


def note_elsewhere(values: Any, place: str) -> None:
  """Notes what a directory names in this file of it."""
  _ELSEWHERE.update(dict.fromkeys(_words(values), place))


def note_own(config: Any, given: Any = ()) -> None:
  """Notes what the user names: a config, but for what it has from a directory that was read before,
  and the values that the command line has given it."""
  words = _words(dict(config)) - _ELSEWHERE.keys() | _words(given)
  _OWN.update(word for word in words if not os.path.exists(f'{word}/config.json'))  # a run's name


def _words(values: Any) -> set[str]:
  """Collects all in nested values that may be the name of a module."""
  plain = lambda value: dict(value) if hasattr(value, 'keys') else str(value)
  return set(re.findall(r'[\w./-]+', json.dumps(values, ensure_ascii=False, default=plain)))


def _here() -> list[str]:
  """Finds the current directory, as Python searches it, unless PYTHONPATH names it."""
  here = os.path.realpath('.')
  named = map(os.path.realpath, filter(None, os.environ.get('PYTHONPATH', '').split(os.pathsep)))
  return [] if here in named else [each for each in sys.path if os.path.realpath(each) == here]
