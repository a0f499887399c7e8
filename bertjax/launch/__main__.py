"""Starts a run in many processes: python -m bertjax.launch local|resumable ..."""

import importlib
import sys

from bertjax.errors import door

PLACES = ('local', 'resumable')


def main(argv: list[str]) -> int:
  """Runs `main(argv)` of the module that the first argument names; returns its exit status."""
  name = argv[0] if argv else ''
  if name in ('-h', '--help'):
    print(__doc__, '\nThe arguments of one: python -m bertjax.launch local --help')
    return 0
  if name not in PLACES:
    print(f'bertjax.launch: expected one of {", ".join(PLACES)}, got {name!r}', file=sys.stderr)
    return 2
  return importlib.import_module(f'bertjax.launch.{name}').main(argv[1:])


if __name__ == '__main__':
  with door('bertjax.launch'):
    sys.exit(main(sys.argv[1:]))
