"""Every key of the config: its type, its range and what it means, and the check of a whole config.

A config is checked before any work, after the overrides of the command line, as a whole and in
every phase. What each section may have is found in sections.py.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from bertjax import cited as sources
from bertjax import options, registry
from bertjax.config import sections, timeline
from bertjax.config.keys import LEAST_PIECES, SHARDING_RULES, Data, Run
from bertjax.errors import UserError, choose
from bertjax.examples import fit, plan_and_mask, readers
from bertjax.field_types import MESH_AXES

READ_WITH_A_STORE = ('store', 'vocab', 'heldout')  # the latter two are compared, or refused
LASTS_HELP = 'how long the phase lasts, against the others'
# Keys of `config.data` that every run reads, wherever its rows are from.
OF_EVERY_READER = ('reader', 'languages', 'vocab', 'lowercase', 'threads')


class Row(NamedTuple):
  """A key of a config for people: its value, type, meaning, and where the value comes from."""

  key: str
  kind: str
  value: str
  meaning: str
  source: str


def check(config: ConfigDict) -> timeline.Timeline:
  """Completes a whole config, then checks it and every phase's; returns its phases. Raises
  UserError: an unknown or a lacking key, a value of another type or out of range, a choice that
  there is not, or a field that the chosen thing does not read; the key is named."""
  sections.complete(config)
  # What follows from others by reference cannot be computed before those are sound.
  options.check_fields(options.fields_of(Run), {key: config[key] for key in config}, 'config')
  resolved = config.copy_and_resolve_references()
  _check_one(resolved)
  line = timeline.make(resolved)
  if config.temperature != 1.0 and not line.drawn:
    raise UserError(
      f'config.temperature={config.temperature} is of phases that are drawn, and this config has '
      'none: remove it'
    )
  for name in line.unmet:
    raise UserError(
      f'config.phases.{name} gets no step of config.total_steps={line.total}: raise that, or '
      'config.epochs where it sets that, or give the phase more of it (share), or the ones before '
      'it less (turns)'
    )
  for phase in line.parts:
    with timeline.named(phase):
      _check_one(phase.config)
  return line


def notes(data: Any) -> list[str]:
  """Returns notes about values of `config.data` that are set and that this run does not read, a
  sentence each; none of a recipe's, which has a source, for the text that it may get."""
  known = options.fields_of(Data)
  asked = lambda key: not sources.source_of(data, key)
  makes = [key for key in readers.of(data).of_run if key not in READ_WITH_A_STORE]
  said = [key for key in makes if _is_set(data, key, known) and asked(key)]
  keys = ', '.join(f'config.data.{key}' for key in said)
  if not said or not data['store']:
    return []
  return [f'{keys} would make a store; config.data.store={data["store"]} is read as it is']


def table(config: Any) -> list[tuple[str, str, str, str]]:
  """(key, type, value, meaning) of every key of a resolved config that is not a section."""
  rows, found = [], list(sections.sections(config))
  keys = {section.key for section in found} | {'config.evals', 'config.phases'}
  for section in found:
    for name, field in section.fields.items():
      if f'{section.key}.{name}' not in keys and name in section.given:
        value = section.given[name]
        shown = repr(value.to_dict() if isinstance(value, ConfigDict) else value)
        kind = options.describe(field.kind)
        rows.append((f'{section.key}.{name}', kind, shown, field.help))
  return rows


def listing(config: Any, whole: bool = False) -> list[Row]:
  """Returns `table` of a whole config, which is completed in place and checked, then of what each
  phase changes, with the sources; with `whole` the keys too that have their default because nothing
  sets them. Raises UserError as `check` does."""
  line = check(config)
  found = table(config.copy_and_resolve_references())
  known = {key: value for key, _, value, _ in found}
  for phase in line.parts if config.phases else ():
    own = f'config.phases.{phase.name}.'
    found += [
      (f'{own}{name}', options.describe(kind), repr(config.phases[phase.name][name]), LASTS_HELP)
      for name, kind in timeline.LASTS.items()
      if name in config.phases[phase.name]
    ]
    for key, kind, value, meaning in table(phase.config):
      if known.get(key) != value:
        found.append((key.replace('config.', own, 1), kind, value, meaning))
  rows = [Row(*row, sources.source_of(config, row[0].removeprefix('config.'))) for row in found]
  return [row for row in rows if whole or row.source != sources.DEFAULT]


def _check_one(config: Any) -> None:
  for section in sections.sections(config):
    options.check_fields(section.fields, dict(section.given), section.key)
  _check_read(config.data)
  fit.check(config)
  trained = config.data.train_vocab
  if trained.type and not trained.size:
    raise UserError(
      f'config.data.train_vocab.size: expected int >= {LEAST_PIECES} with type={trained.type!r}, '
      'got 0'
    )
  for name, axes in config.sharding_rules:
    choose(name, dict(SHARDING_RULES), 'config.sharding_rules, logical axes')
    for axis in (axes,) if isinstance(axes, str) else axes or ():
      choose(axis, MESH_AXES, f'config.sharding_rules, mesh axes of {name!r}')


def _check_read(data: Any) -> None:
  """Refuses values of `config.data` that are for another reader than the one that it names."""
  reader, known = data.reader, options.fields_of(Data)
  # The sections of the rows that are not read take no fields.
  read = {*OF_EVERY_READER, *sections.reads_of(reader), *plan_and_mask.FOLDERS}
  for key in data:
    if key not in read and _is_set(data, key, known):
      others = [
        name
        for name in registry.names_in('bertjax.examples.readers')
        if key in sections.reads_of(name)
      ]
      raise UserError(
        f'config.data.{key} is not read with config.data.reader={reader!r}: expected '
        f'{known[key].default!r}, got {data[key]!r}; leave it out, or set config.data.reader to '
        f'one that reads it: {", ".join(others)}'
      )


def _is_set(data: Any, key: str, known: Mapping[str, options.Field]) -> bool:
  """Returns whether a key of config.data has another value than its default."""
  value = data[key]
  if isinstance(value, ConfigDict):
    return any(value[name] for name in value)
  return value != known[key].default
