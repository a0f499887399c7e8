"""Prints a config with everything resolved: python -m bertjax.recipe --config=configs/bert.py:base

One line per key, as it would be given on the command line; --explain adds types and meanings. What
a phase changes follows under its name. Keys that nothing reads, or values out of range, are refused
as `bertjax.main` would refuse them.
"""

import sys

from absl import app, flags
from ml_collections import config_flags
from rich.console import Console
from rich.table import Table

from bertjax import config_files, schema
from bertjax.errors import door

_CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'Config file, e.g. configs/bert.py:base; override with --config.KEY=VALUE.'
)
_EXPLAIN = flags.DEFINE_bool('explain', False, 'Show the type and the meaning of each key.')
flags.mark_flag_as_required('config')


def main(argv: list[str]) -> None:
  """Prints the table."""
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments: {" ".join(argv[1:])}')
  rows = schema.listing(_CONFIG.value)
  if not _EXPLAIN.value:
    print('\n'.join(f'--{key}={value}' for key, _, value, _ in rows))
    return
  table = Table('key', 'value', 'type', 'meaning', show_lines=False)
  for key, kind, value, meaning in rows:
    table.add_row(key.removeprefix('config.'), value, kind, meaning)
  Console().print(table)


if __name__ == '__main__':
  __doc__ = f'{__doc__}{config_files.keys_help(sys.argv)}'
  with door('bertjax.recipe'):
    app.run(main, config_files.located(sys.argv))
