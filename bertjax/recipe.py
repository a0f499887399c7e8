"""Prints a config with everything resolved: python -m bertjax.recipe --config=configs/bert.py:base

One line per key, as it would be given on the command line; --explain adds types and meanings. What
a phase changes follows under its name. Keys that nothing reads, or values out of range, are refused
as `bertjax.main` would refuse them.
"""

import sys
from typing import Any

from absl import app, flags
from ml_collections import config_flags
from rich.console import Console
from rich.table import Table

from bertjax import installed_configs, schema
from bertjax.train import timeline

_CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'Config file, e.g. configs/bert.py:base; override with --config.KEY=VALUE.'
)
_EXPLAIN = flags.DEFINE_bool('explain', False, 'Show the type and the meaning of each key.')
flags.mark_flag_as_required('config')


def lines(config: Any) -> list[tuple[str, str, str, str]]:
  """(key, type, value, meaning) of a config's keys, then of what each phase changes.

  Raises:
    UserError: as `schema.check`.
  """
  schema.check(config)
  resolved = config.copy_and_resolve_references()
  found = schema.table(resolved)
  known = {key: value for key, _, value, _ in found}
  for phase in timeline.make(config).phases if resolved.phases else ():
    for key, kind, value, meaning in schema.table(phase.config):
      if known.get(key) != value:
        key = key.replace('config.', f'config.phases.{phase.name}.', 1)
        found.append((key, kind, value, meaning))
  return found


def help_of(config: Any) -> str:
  """The keys of a config with their types, values and meanings, for `--help`."""
  shown = [
    f'  --{key}={value}\n      {kind}{"; " + meaning if meaning else ""}'
    for key, kind, value, meaning in lines(config)
  ]
  return '\n'.join(['', 'Keys of the config, their values, types and meanings:', *shown])


def main(argv: list[str]) -> None:
  """Prints the table."""
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments: {" ".join(argv[1:])}')
  rows = lines(_CONFIG.value)
  if not _EXPLAIN.value:
    print('\n'.join(f'--{key}={value}' for key, _, value, _ in rows))
    return
  table = Table('key', 'value', 'type', 'meaning', show_lines=False)
  for key, kind, value, meaning in rows:
    table.add_row(key.removeprefix('config.'), value, kind, meaning)
  Console().print(table)


if __name__ == '__main__':
  sys.exit(app.run(main, installed_configs.located(sys.argv)))
