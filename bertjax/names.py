"""The keyword-only arguments of a function as the fields of a config."""

import inspect
from collections.abc import Callable, Iterable, Mapping

from bertjax.errors import UserError, choose


def fields_of(function: Callable) -> dict[str, bool]:
  """The keyword-only arguments of a function: name -> whether it may be left out."""
  parameters = inspect.signature(function).parameters.values()
  return {p.name: p.default is not p.empty for p in parameters if p.kind is p.KEYWORD_ONLY}


def check_fields(fields: Iterable[str], known: Mapping[str, bool], what: str) -> None:
  """Refuses the fields of a config that are not those a function takes.

  Raises:
    UserError: a field that is not known (the nearest is named), or one that is lacking.
  """
  fields = list(fields)
  for field in fields:
    choose(field, known, f'fields of {what}')
  lacking = [name for name, optional in known.items() if not optional and name not in fields]
  if lacking:
    raise UserError(f'{what} lacks {", ".join(lacking)}; it has {", ".join(sorted(fields))}')
