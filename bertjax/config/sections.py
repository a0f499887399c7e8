"""The sections of a config, what each of them may have, and the defaults of what it leaves out.

The keys of a run are in keys.py; those of what is chosen by name (plan, mask, model, objective,
optimizer, schedule, evaluator) are the options of the thing itself. Each key has its default there
too: a config file sets what is its own, and `complete` fills in the rest where the command line is
read and where a run begins.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from bertjax import cited, options, registry, removed
from bertjax.config import defaults
from bertjax.config.keys import FIXED, Teacher
from bertjax.errors import UserError
from bertjax.examples.plan_and_mask import FOLDERS
from bertjax.field_types import Natural

METADATA = ('name', 'family', 'size')  # of a model, besides its options


class Described(NamedTuple):
  """A section of the config: its key and what its fields are checked against."""

  key: str
  given: Any
  fields: Mapping[str, options.Field]


def complete(config: ConfigDict, asked: Iterable[str] = ()) -> None:
  """Fills in, in place, the default of every key that a config leaves out; removes what was filled
  in for a choice that the config no longer makes. Keys that are `asked` for are to be there: a set
  of config.evals is made where its name is that of a module of bertjax/evals. Raises UserError as
  `sections` does."""
  with config.unlocked():
    for section in sections(config):
      defaults.fill(section.given, section.fields, config.get_oneway_ref)
      if asked and section.key == 'config':
        _offer_evals(config, asked)
    if asked:
      _offer_phases(config, asked)


def _offer_evals(config: Any, asked: Iterable[str]) -> None:
  """Makes the sets of evaluations that are asked for under the name of an evaluator."""
  known = registry.names_in('bertjax.evals')
  for name in [name for first, name, *_ in map(_parts, asked) if first == 'evals']:
    if name in known and name not in config.evals:
      config.evals[name] = cited.cited(cited.DEFAULT, type=name)


def _offer_phases(config: Any, asked: Iterable[str]) -> None:
  """Gives phases the keys that are asked for, with the values that the run has."""
  for first, name, *keys in map(_parts, asked):
    phase, run = config.phases.get(name) if first == 'phases' else None, config
    if phase is None or not keys or not _has(run, keys):
      continue
    *above, last = keys
    for key in above:
      if key not in phase:
        phase[key] = cited.Recipe()
      phase, run = phase[key], run[key]
    if last not in phase:
      whole = isinstance(run[last], ConfigDict)
      phase[last] = cited.Recipe() if whole else run.get_oneway_ref(last)
      cited.reattribute(phase, cited.DEFAULT, last)


def _has(section: Any, keys: Sequence[str]) -> bool:
  """Returns whether a config has this key, given part by part."""
  for key in keys:
    if not isinstance(section, ConfigDict) or key not in section:
      return False
    section = section[key]
  return True


def _parts(key: str) -> list[str]:
  return [*key.split('.'), '', ''][: max(2, key.count('.') + 1)]


def sections(config: Any) -> Iterator[Described]:
  """Yields the sections of a resolved config, from the top. Raises UserError if a section is
  lacking, or a choice that there is not."""

  def at(key: str) -> Any:
    found = config
    for name in filter(None, key.split('.')):
      if name not in found or not hasattr(found[name], 'items'):
        got = repr(found[name]) if name in found else 'nothing'
        raise UserError(f'config.{key}: expected a dict of fields, got {got}')
      found = found[name]
    return found

  for key, fields in FIXED.items():
    yield Described(f'config.{key}'.rstrip('.'), at(key), options.fields_of(fields))
  data = config['data']
  reads = reads_of(data['reader'])
  for key, folder in FOLDERS.items():
    where = f'config.data.{key}'
    yield _chosen(where, data[key], folder) if key in reads else Described(where, data[key], {})
  for key in ('model', 'objective'):
    yield _chosen(f'config.{key}', at(key), f'bertjax.{key}s')
  if 'teacher' in config['objective']:
    key = 'objective.teacher'
    yield Described(f'config.{key}', at(key), options.fields_of(Teacher))
  yield from _of_optimizer(at('optimizer'))
  for name, given in at('evals').items():
    removed.refuse(f'config.evals.{name}')
    yield _chosen(f'config.evals.{name}', given, 'bertjax.evals', 'type')


def reads_of(reader: str) -> Sequence[str]:
  """Returns which sections of `FOLDERS` this reader reads."""
  return registry.chosen('bertjax.examples.readers', reader, 'config.data.reader').reads


def _chosen(key: str, given: Any, package: str, by: str = 'name') -> Described:
  """Returns a section whose fields are those of the module that it names."""
  if by not in given:
    names = ', '.join(registry.names_in(package))
    raise UserError(f'{key} lacks {by}: expected one of {names}')
  found = registry.chosen(package, given[by], f'{key}.{by}')
  own = {by: options.Field(str, True, '')}
  if package == 'bertjax.models':
    own |= dict.fromkeys(METADATA, options.Field(str, True, ''))
  if package == 'bertjax.evals':
    every = 0 if found.at_end else defaults.AS_THE_RUN
    own['every'] = options.Field(
      Natural, False, 'steps between two evaluations; 0: at the end', every
    )
  return Described(key, given, options.fields_of(found.options) | own)


def _of_optimizer(given: Mapping[str, Any]) -> Iterator[Described]:
  from bertjax.optim import optimizer, schedules

  yield Described(optimizer.WHAT, given, optimizer.fields_of(given))
  schedule = given.get('schedule', {})
  yield Described(schedules.WHAT, schedule, schedules.fields_of(schedule))
