"""Every key of the config: its type, its range and what it means, and the check of a whole config.

The keys of a run are in keys.py; those of what is chosen by name (plan, mask, model,
objective, optimizer, schedule, evaluator) are the options of the thing itself, and defaults are in
`configs/`.
A config is checked before any work, after the overrides of the command line, as a whole and in
every phase.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from bertjax import cited as sources
from bertjax import options, registry, removed
from bertjax.config import timeline
from bertjax.config.keys import (
  LEAST_PIECES,
  Best,
  Data,
  MeshSizes,
  Profile,
  Run,
  Teacher,
  TrainVocab,
)
from bertjax.errors import UserError, choose
from bertjax.field_types import Natural
from configs import common

# Sections of `config.data` that a reader may have its rows made by: (key, folder, export).
OF_THE_ROWS = (
  ('plan', 'bertjax.examples.plans', 'PLAN'),
  ('mask', 'bertjax.examples.noise', 'MASKING'),
  ('task', 'bertjax.examples.labelled', 'TASK'),
)
# Keys of `config.data` that say how a store is made.
OF_THE_TEXT = (
  'input', 'mixture', 'module', 'train_vocab', 'lowercase', 'split', 'errors', 'field', 'skip_bad',
  'documents', 'columns', 'lexicon', 'segmenter', 'holdout', 'workers',
)  # fmt: skip
LASTS_HELP = 'how long the phase lasts, against the others'
# Keys of `config.data` that every run reads, wherever its rows are from.
OF_EVERY_READER = ('reader', 'languages', 'vocab', 'lowercase', 'threads')
MESH_AXES = tuple(name for name in MeshSizes._fields if name != 'slices')
METADATA = ('name', 'family', 'size')  # of a model, besides its options


class Row(NamedTuple):
  """A key of a config for people: its value, type, meaning, and where the value comes from."""

  key: str
  kind: str
  value: str
  meaning: str
  source: str


class Described(NamedTuple):
  """A section of the config: its key and what its fields are checked against."""

  key: str
  given: Mapping[str, Any]
  fields: Mapping[str, options.Field]


def check_keys(config: ConfigDict) -> None:
  """Checks the keys of the config that are not in a section: what follows from them by reference
  cannot be computed before they are sound."""
  options.check_fields(options.fields_of(Run), {key: config[key] for key in config}, 'config')


def check(config: ConfigDict) -> timeline.Timeline:
  """Checks a whole config, then every phase's; returns its phases.

  Raises:
    UserError: an unknown or a lacking key, a value of another type or out of range, a choice that
      there is not, or a field that the chosen thing does not read; the key is named.
  """
  check_keys(config)
  _check_one(config.copy_and_resolve_references())
  line = timeline.make(config)
  if 'temperature' in config and not line.drawn:
    raise UserError(
      f'config.temperature={config.temperature} is of phases that are drawn, and this config has '
      'none: remove it'
    )
  for name in line.unmet:
    raise UserError(
      f'config.phases.{name} gets no step of config.total_steps={line.total}: raise that, or give '
      'the phase more of it (share), or the ones before it less (turns)'
    )
  for phase in line.parts:
    try:
      _check_one(phase.config)
    except UserError as error:
      raise UserError(f'in phase {phase.name!r}: {error}') from error
  return line


def sections(config: Any) -> Iterator[Described]:
  """The sections of a resolved config, from the top.

  Raises:
    UserError: a section is lacking, or a choice that there is not.
  """
  yield _described('config', config, Run)
  for key, fields in (('best', Best), ('mesh', MeshSizes), ('profile', Profile), ('data', Data)):
    yield _described(f'config.{key}', _section(config, key), fields)
  data = _section(config, 'data')
  yield _described('config.data.train_vocab', data['train_vocab'], TrainVocab)
  reads = _reads(data['reader'])
  for key, folder, export in OF_THE_ROWS:
    where = f'config.data.{key}'
    read = key in reads
    yield _chosen(where, data[key], folder, export) if read else Described(where, data[key], {})
  for key in ('model', 'objective'):
    yield _chosen(f'config.{key}', _section(config, key), f'bertjax.{key}s', key.upper())
  if 'teacher' in config['objective']:
    teacher = _section(config['objective'], 'teacher')
    yield _described('config.objective.teacher', teacher, Teacher)
  yield from _of_optimizer(_section(config, 'optimizer'))
  for name, given in _section(config, 'evals').items():
    removed.refuse(f'config.evals.{name}')
    yield _chosen(f'config.evals.{name}', given, 'bertjax.evals', 'EVALUATOR', 'type')


def notes(config: Any) -> list[str]:
  """Returns notes about values that are set and that this run does not read, a sentence each."""
  data, unsaid = config['data'], common.data()
  if not data['store']:
    return []
  said = [key for key in OF_THE_TEXT if data[key] != unsaid[key]]
  keys = ', '.join(f'config.data.{key}' for key in said)
  if not said:
    return []
  return [f'{keys} would make a store; config.data.store={data["store"]} is read as it is']


def table(config: Any) -> list[tuple[str, str, str, str]]:
  """(key, type, value, meaning) of every key of a resolved config that is not a section."""
  rows, found = [], list(sections(config))
  keys = {section.key for section in found} | {'config.evals', 'config.phases'}
  for section in found:
    for name, field in section.fields.items():
      if f'{section.key}.{name}' not in keys and name in section.given:
        value = section.given[name]
        shown = repr(value.to_dict() if isinstance(value, ConfigDict) else value)
        kind = options.describe(field.kind)
        rows.append((f'{section.key}.{name}', kind, shown, field.help))
  return rows


def listing(config: Any) -> list[Row]:
  """`table` of a whole config, checked, then of what each phase changes, with the sources.

  Raises:
    UserError: as `check`.
  """
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
  return [Row(*row, sources.source_of(config, row[0].removeprefix('config.'))) for row in found]


def _check_one(config: Any) -> None:
  for section in sections(config):
    options.check_fields(section.fields, dict(section.given), section.key)
  _check_read(config.data)
  trained = config.data.train_vocab
  if trained.type and not trained.size:
    raise UserError(
      f'config.data.train_vocab.size: expected int >= {LEAST_PIECES} with type={trained.type!r}, '
      'got 0'
    )
  _check_rules(config.sharding_rules)


def _check_rules(rules: Any) -> None:
  """Refuses rules of axes that no parameter and no activation, or no mesh, has."""
  for name, axes in rules:
    choose(name, dict(common.SHARDING_RULES), 'config.sharding_rules, logical axes')
    for axis in (axes,) if isinstance(axes, str) else axes or ():
      choose(axis, MESH_AXES, f'config.sharding_rules, mesh axes of {name!r}')


def _check_read(data: Any) -> None:
  """Refuses values of `config.data` that are for another reader than the one that it names."""
  reader, unsaid = data.reader, common.data()
  chosen = {key for key, _, _ in OF_THE_ROWS}  # those that are not read take no fields
  read = {*OF_EVERY_READER, *_reads(reader), *chosen}
  for key in data:
    default = unsaid.get(key, '')  # '': a key of fine-tuning alone
    if key not in read and _plain(data[key]) != _plain(default):
      others = [
        name for name in registry.names_in('bertjax.examples.readers') if key in _reads(name)
      ]
      raise UserError(
        f'config.data.{key} is not read with config.data.reader={reader!r}: expected '
        f'{default!r}, got {data[key]!r}; leave it out, or set config.data.reader to one that '
        f'reads it: {", ".join(others)}'
      )


def _plain(value: Any) -> Any:
  """Returns a value of a config file, or a stored one, as the same plain value."""
  return value.to_dict() if isinstance(value, ConfigDict) else value


def _reads(reader: str) -> Sequence[str]:
  return registry.find('bertjax.examples.readers', reader, 'config.data.reader').READER.reads


def _described(key: str, given: Any, source: Callable[..., Any]) -> Described:
  return Described(key, given, options.fields_of(source))


def _section(config: Any, key: str) -> Mapping[str, Any]:
  if key not in config or not hasattr(config[key], 'items'):
    got = repr(config[key]) if key in config else 'nothing'
    raise UserError(f'config.{key}: expected a dict of fields, got {got}')
  return config[key]


def _chosen(key: str, given: Any, package: str, export: str, by: str = 'name') -> Described:
  """A section whose fields are those of the module that it names."""
  if by not in given:
    names = ', '.join(registry.names_in(package))
    raise UserError(f'{key} lacks {by}: expected one of {names}')
  found = getattr(registry.find(package, given[by], f'{key}.{by}'), export)
  own = {by: options.Field(str, True, '')}
  if export == 'MODEL':
    own |= dict.fromkeys(METADATA, options.Field(str, True, ''))
  if export == 'EVALUATOR':
    own['every'] = options.Field(Natural, True, 'steps between two evaluations; 0: at the end')
  return Described(key, given, options.fields_of(found.options) | own)


def _of_optimizer(given: Mapping[str, Any]) -> Iterator[Described]:
  from bertjax.optim import optimizer, schedules

  yield Described(optimizer.WHAT, given, optimizer.fields_of(given))
  schedule = given.get('schedule', {})
  yield Described(schedules.WHAT, schedule, schedules.fields_of(schedule))
