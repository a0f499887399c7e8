"""A workdir belongs to one run: config.json keeps its config, and a resume must agree with it,
but for the keys of may_differ.py.

format   of this file and of all that lies beside it
config   resolved, see train/resolve.py: the run describes itself
facts    that were filled into it, see train/facts.py
history  what a resume has changed, and when; see history.py
"""

import contextlib
import json
import pathlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
from ml_collections import ConfigDict

from bertjax import dotted, json_files, registry, removed
from bertjax.checkpoint import history, reading
from bertjax.checkpoint.may_differ import DECIDE_BATCHES, MAY_DIFFER, config_differences, covers
from bertjax.config import sections
from bertjax.errors import UserError, absent, nearest, writing
from bertjax.machine import durable, locks, remote
from bertjax.vocab import kept
from bertjax.vocab.vocabulary import Vocabulary, read_vocabulary

FORMAT = 11  # 10 had no facts
NAME = 'config.json'
VOCAB = 'vocab'  # of the run, beside it
STOPPED = 'stopped.json'  # the step after which early stopping ended the run
SAVED = 'saved.json'  # the step of the last checkpoint that was complete: what must be there


@contextlib.contextmanager
def alone_in(workdir: pathlib.Path | str) -> Iterator[None]:
  """Holds the workdir, so that no second run starts in it (UserError); the system lets go with
  us."""
  if jax.process_index() != 0:
    yield
    return
  path = pathlib.Path(workdir, 'lock')
  with contextlib.ExitStack() as stack:
    with writing('the lock of the workdir', path):
      stack.enter_context(locks.alone(path, f'another run is at work in {workdir}'))
    yield


def stored(workdir: pathlib.Path | str) -> dict[str, Any] | None:
  """Reads config.json of a workdir; None if no run has begun there. UserError: another format, or
  torn."""
  path = remote.path(workdir) / NAME
  if not path.exists():
    return None
  found = _read(path, "then the config that is given is the run's")
  if 'model_type' in found:
    raise UserError(
      f'{workdir} is a directory of transformers, not a run: name it as in --config.init_from=hf:'
      f'{workdir}, or make a run of it with `python -m bertjax.convert --from=hf --input={workdir} '
      '--output=RUN`'
    )
  json_files.check(path, found, dict(format=int))
  version = 1 if found.get('format') is None else found['format']
  if version != FORMAT:
    raise UserError(
      f'{workdir} holds a run of format {version}, this bertjax reads format {FORMAT}: finish it '
      'with the bertjax that began it, or give another --workdir, where '
      f"""--config.init_from="(('{workdir}','params','params',()),)" takes over its parameters"""
    )
  if not isinstance(found.get('config'), dict):
    raise UserError(f'{path}: expected the config of a run, got the keys {", ".join(found)}')
  registry.note_elsewhere(found, str(path))
  found |= {part: removed.without(found[part]) for part in ('config', 'facts') if part in found}
  config = found['config']
  if found.get('facts', {}).get('vocabulary'):  # it came with a model
    config['data']['vocab'] = str(path.with_name(VOCAB))  # the workdir may have moved
  return dict(found, config=_completed(config))


def _completed(config: dict[str, Any]) -> dict[str, Any]:
  """Gives keys that there were not when the run began their defaults, by which it went on."""
  whole = as_config(config)
  try:
    sections.complete(whole)
  except UserError:
    return config  # a choice that is not here or not trusted is refused where it is resolved
  return as_json(whole)


def note_saved(workdir: pathlib.Path | str, step: int) -> None:
  """Notes in the workdir that a checkpoint is complete."""
  durable.write_json(pathlib.Path(workdir, SAVED), dict(step=step))


def note_stopped(workdir: pathlib.Path | str, step: int | None) -> None:
  """Notes from process 0 after which step early stopping has ended the run; None: it goes on after
  all."""
  path = pathlib.Path(workdir, STOPPED)
  if jax.process_index() == 0 and (step is not None or path.exists()):
    durable.write_json(path, dict(step=step))


def last_step(workdir: pathlib.Path | str, total_steps: int) -> int:
  """Returns the last step of a run: total_steps, or where it was stopped early."""
  path = remote.path(workdir) / STOPPED
  stopped = _read(path, 'then the run goes on').get('step') if path.exists() else None
  return total_steps if stopped is None else min(stopped, total_steps)


def check_history(workdir: pathlib.Path | str) -> list[str]:
  """Refuses to begin anew where a run has been saved and its checkpoints have vanished; returns
  lines about the newest ones if they alone have, and about a name that is none."""
  directory, path = pathlib.Path(workdir, 'checkpoints'), pathlib.Path(workdir, SAVED)
  saved = _read(path, 'then its newest checkpoint is resumed').get('step') if path.exists() else 0
  # A run makes the directory before its config.json, which older workdirs have alone.
  gone = pathlib.Path(workdir, NAME).exists() and not directory.exists()
  steps, names = reading.steps_in(directory), sorted(p.name for p in directory.glob('*'))
  odd = [name for name in names if name.isdecimal() and not reading.is_step(name)]
  said = [f'{directory}/{name} is left alone: expected the name {int(name)}' for name in odd]
  if gone or saved and not steps:
    known = f'checkpoint {saved} was the last one' if saved else f'{NAME} is there'
    raise UserError(
      f'{workdir} holds a run, {known}, but nothing in {directory}: it was removed, or is not '
      'mounted. Put it back; to begin anew give another --workdir, or remove this one'
      + ''.join(f'. {line}' for line in said)
    )
  if saved and max(steps) < saved:
    said += [f'Checkpoint {saved} of {directory} has vanished: going on from {max(steps)}']
  return said


def stored_config(workdir: pathlib.Path | str) -> ConfigDict:
  """Returns the resolved config of the run in a workdir. UserError: as `required`."""
  return as_config(required(workdir)['config'])


def required(workdir: pathlib.Path | str) -> dict[str, Any]:
  """Returns what `stored` does. UserError: no run, or of another format."""
  found = stored(workdir)
  if found is None:
    raise absent(remote.path(workdir) / NAME, 'the config of a run, in its workdir')
  return found


def as_config(values: Mapping[str, Any]) -> ConfigDict:
  """Returns the config that JSON values stand for."""
  return ConfigDict(with_tuples(values))


def with_tuples(value: Any) -> Any:
  """Returns the value with the tuples of configs where JSON has lists."""
  if isinstance(value, Mapping):
    return {k: with_tuples(v) for k, v in value.items()}
  return tuple(map(with_tuples, value)) if isinstance(value, list | tuple) else value


def compare(
  workdir: pathlib.Path | str,
  found: Mapping[str, Any] | None,
  config: ConfigDict,
  overrides: Iterable[str] = (),
) -> list[str]:
  """Compares a resolved config with that of the run in the workdir, `found` in its config.json;
  returns a line for each key that `overrides` change. UserError: keys differ that neither
  MAY_DIFFER nor `overrides` cover; another vocabulary; or no run, or no such key, to override."""
  names = [name.removeprefix('config.') for name in overrides]
  if found is None:
    if names:
      raise UserError(
        f'--override={",".join(names)}: expected a run whose config is to change, got {workdir}, '
        'where none has begun: leave it out'
      )
    return []
  old, new = dotted.flat(found['config']), dotted.flat(as_json(config))
  for name in names:
    if not any(covers([name], key) for key in (*old, *new)):
      said = f'--override: expected a key of the config, got {name!r}'
      raise UserError(f'{said}{nearest(name, {*old, *new})}')
  differences = config_differences(old, new)
  refused = [each for each in differences if not covers(names, each[0])]
  if refused:
    lines = '\n'.join(f'  config.{k}: expected {a!r}, got {b!r}' for k, a, b in refused)
    raise UserError(
      f'{workdir} holds a run of another config:\n{lines}\n'
      'Give the same values to resume it, name those that are to change with --override=KEY, or '
      'give another --workdir for a new run'
    )
  if not covers(names, 'data.vocab'):
    _check_vocabulary(workdir, config.data)
  return [f'config.{k}: {b!r} from now on, {a!r} before (--override)' for k, a, b in differences]


def _check_vocabulary(workdir: pathlib.Path | str, data: Any) -> None:
  """Refuses another vocabulary under the old name, where a run reads one; a store has its own."""
  own = pathlib.Path(workdir, VOCAB)
  if data.reader == 'store' or not data.vocab or not own.exists():
    return
  if not kept.holds(own, read_vocabulary(data.vocab, data.lowercase)):
    raise UserError(
      f'config.data.vocab={data.vocab} is another vocabulary than when the run in {workdir} began, '
      f'which keeps its own in {own}: put that back, or give another --workdir for a new run'
    )


def claim_workdir(
  workdir: pathlib.Path | str, config: Any, facts: Mapping[str, Any], start: int = 0
) -> dict[str, Any]:
  """Writes config.json: the resolved config, and the facts as JSON values. Call it after the first
  step, so that a config that cannot work does not keep the workdir. Returns key -> {old, new} of
  what was changed on purpose after step `start`, on process 0."""
  if jax.process_index() != 0:
    return {}
  whole, path = as_json(config), pathlib.Path(workdir, NAME)
  with writing('the config of the run', path):
    changed = history.extended(stored(workdir), whole, start)
    values = dict(format=FORMAT, config=whole, facts=facts, history=changed)
    durable.write_json(path, values)
  found = history.changed_from(changed, start)
  return {key: sides for key, sides in found.items() if not covers(MAY_DIFFER, key)}


def changed_batches(changed: Iterable[str]) -> list[str]:
  """Returns those of `changes` that decide batches."""
  return [key for key in changed if covers(DECIDE_BATCHES, key) and not covers(MAY_DIFFER, key)]


def changes(found: Mapping[str, Any] | None, resolved: Any, start: int) -> dict[str, Any]:
  """Returns key -> {old, new} of what has changed in the config of a config.json, or is to change
  to `resolved`, after `start` steps."""
  return history.changed_from(history.extended(found, as_json(resolved), start), start)


def trained_already(found: Mapping[str, Any] | None, skips: Iterable[Any], start: int) -> list[Any]:
  """Returns the new entries of config.skip_steps whose first step was taken already."""
  before = with_tuples(found['config'].get('skip_steps', ())) if found else ()
  new = [each for each in skips if each not in before]
  return [each for each in new if (each if isinstance(each, int) else each[0]) <= start]


def keep_vocabulary(workdir: pathlib.Path | str, vocabulary: Vocabulary | None) -> None:
  """Copies the vocabulary into the workdir, so that the run can be used without its store."""
  if jax.process_index() == 0 and vocabulary is not None:
    kept.keep(vocabulary, pathlib.Path(workdir, VOCAB))


def overrides(workdir: pathlib.Path | str, config: ConfigDict) -> list[str]:
  """`key: value, in training value` for every key in which a config differs from the workdir's."""
  found = changes(stored(workdir), config, sys.maxsize)  # after all changes of the run
  said = lambda sides: f'{sides.get("new")!r}, in training {sides.get("old")!r}'
  return [f'config.{key}: {said(sides)}' for key, sides in found.items()]


def _read(path: remote.Place, otherwise: str) -> dict[str, Any]:
  return json_files.read(path, dict, f'. Put a copy in its place, or remove it: {otherwise}')


def as_json(config: ConfigDict) -> dict[str, Any]:
  """Returns a config as its file has it."""
  return json.loads(config.to_json_best_effort())
