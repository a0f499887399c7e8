"""A mistake of the user, which is shown as one line; every other error keeps its traceback."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
  """What the user gave cannot work: says what was expected, what it got, and the remedy."""


def choose(name: str, options: Iterable[str], what: str) -> str:
  """`name`, if it is one of the options.

  Args:
    name: what the user gave.
    options: what there is.
    what: the key that was given, for the message.

  Raises:
    UserError: it is none of them; says which there are and which is nearest.
  """
  options = sorted(options)
  if name in options:
    return name
  near = difflib.get_close_matches(str(name), options, 1)
  hint = f'; did you mean {near[0]!r}?' if near else ''
  raise UserError(f'{what}: expected one of {", ".join(options)}, got {name!r}{hint}')
