"""Arguments of a command or a launcher, before any package reads them."""

import sys
from collections.abc import Collection, Iterator, Sequence

from bertjax.errors import UserError

HELP = ('-h', '--help')


def wants_help(argv: Sequence[str], doc: str | None) -> bool:
  """Prints a module's docstring where the arguments ask for it."""
  if argv and argv[0] not in HELP:
    return False
  print((doc or '').strip(), file=sys.stdout if argv else sys.stderr)
  return True


def value(argv: Sequence[str], flag: str) -> str | None:
  """Returns the value of the last `--flag=VALUE` or `--flag VALUE`, '' of one at the end; None if
  there is none."""
  found = None
  for argument, following in zip(argv, [*argv[1:], ''], strict=True):
    name, equals, text = argument.partition('=')
    if name in (f'--{flag}', f'-{flag}'):
      found = text if equals else following
  return found


def switched(argv: Sequence[str], flag: str) -> bool:
  """Returns whether the last of `--flag`, `--flag=true` and `--noflag` switches a flag on."""
  on = False
  for argument in argv:
    name, equals, text = argument.partition('=')
    if name.startswith('-') and name.lstrip('-') in (flag, f'no{flag}'):
      on = text.lower() in ('true', 't', '1') if equals else name.lstrip('-') == flag
  return on


def required(argv: Sequence[str], flag: str) -> str:
  """Returns `value`, which must be there. Raises UserError if it is not there."""
  found = value(argv, flag)
  if not found:
    raise UserError(f'expected --{flag}=..., as of python -m bertjax.main, got {list(argv)}')
  return found


def without_flags(
  argv: Sequence[str], valued: Collection[str], switches: Collection[str]
) -> Iterator[str]:
  """Yields the arguments without flags with a value, in one word or two, and switches."""
  skip = False
  for argument in argv:
    name, equals, _ = argument.lstrip('-').partition('=')
    if skip or (argument.startswith('-') and name in {*valued, *switches}):
      skip = not skip and not equals and name in valued
    else:
      yield argument
