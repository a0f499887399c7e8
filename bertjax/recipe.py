"""Prints a config with everything resolved: python -m bertjax.recipe --config=configs/bert.py:base

One line per key that the recipe sets, as it would be given on the command line, and where the value
comes from: a file of the original (after the name of its repository) with the function or flag, a
part of the paper, or 'ours' and why. What was not read there is marked (unverified). A value that
follows from others, and has another than the source gave it, says that one too: (10000 there).
--all adds every other key that may be set, with its default; --unverified prints only the
unverified, --explain adds types and meanings. What a phase changes follows under its name. Keys
that nothing reads, or values out of range, are refused as `bertjax.main` would refuse them.
"""

import sys

from absl import flags
from ml_collections import config_flags
from rich.console import Console
from rich.table import Table

from bertjax.cited import UNVERIFIED
from bertjax.config import command_line, schema
from bertjax.errors import door

_CONFIG = command_line.define_config()
_ALL = flags.DEFINE_bool('all', False, 'Show the keys too that have their default.')
_EXPLAIN = flags.DEFINE_bool('explain', False, 'Show the type and the meaning of each key.')
_UNVERIFIED = flags.DEFINE_bool(
  'unverified', False, 'Show only the values whose source was not read.'
)
flags.mark_flag_as_required('config')
WIDTH = 64  # a source begins here, or behind a longer value


def main() -> None:
  """Prints the table."""
  given = config_flags.get_override_values(flags.FLAGS['config'])
  rows = [
    row._replace(source='the command line') if row.key.removeprefix('config.') in given else row
    for row in schema.listing(_CONFIG.value, whole=_ALL.value)
  ]
  if _UNVERIFIED.value:
    rows = [row for row in rows if UNVERIFIED in row.source]
  if not _EXPLAIN.value:
    for row in rows:
      print(f'{f"--{row.key}={row.value}":{WIDTH}}  # {row.source or "no source"}')
    return
  table = Table('key', 'value', 'source', 'type', 'meaning', show_lines=False)
  for row in rows:
    key = row.key.removeprefix('config.')
    table.add_row(key, row.value, row.source or 'no source', row.kind, row.meaning)
  Console(width=None if sys.stdout.isatty() else 200).print(table)


if __name__ == '__main__':
  with door('bertjax.recipe'):
    command_line.run(main, 'bertjax.recipe')
