"""Measured speed, memory and traffic, one JSON line each:

python -m bertjax.bench step|input|prepare|plans|kernel|recurrence|embed [flags]
"""

import importlib
import os
import sys
from types import ModuleType

from absl import app, flags
from ml_collections import config_flags

from bertjax import config_files, malloc, presets
from bertjax.errors import door

BENCHES = ('step', 'input', 'prepare', 'plans', 'kernel', 'recurrence', 'embed')


def main() -> None:
  """Runs `main(argv)` of the bench module that the first argument names, with the flags it has."""
  name = sys.argv[1] if len(sys.argv) > 1 else ''
  if name in ('-h', '--help'):
    sys.exit(print(__doc__, '\nThe flags of one: python -m bertjax.bench step --help'))
  if name not in BENCHES:
    sys.exit(f'bertjax.bench: expected one of {", ".join(BENCHES)}, got {name!r}')
  bench = importlib.import_module(f'bertjax.bench.{name}')
  flags.adopt_module_key_flags(bench)  # so that --help shows them
  if 'config' in flags.FLAGS:
    sys.modules['__main__'].__doc__ = f'{bench.__doc__}{config_files.keys_help(sys.argv)}'
  app.run(lambda argv: _run(bench, argv), config_files.located([sys.argv[0], *sys.argv[2:]]))


def _run(bench: ModuleType, argv: list[str]) -> None:
  if 'config' in flags.FLAGS and flags.FLAGS['config'].value is not None:
    given = config_flags.get_override_values(flags.FLAGS['config'])
    for line in presets.apply(flags.FLAGS['config'].value, given, os.environ):
      print(line, file=sys.stderr)  # standard output is JSON
  bench.main(argv)


if __name__ == '__main__':
  with door('bertjax.bench'):
    malloc.one_arena()
    main()
