"""From a config and the facts of a run to its RunSpec: `resolve`, one pure function.

Nothing else changes a config between the command line and the first step. The order:

  steps         config.minutes and config.epochs set total_steps
  classes       config.data.task.classes=infer becomes those of the examples
  source        config.init_from brings fields of config.model
  preset        config.preset sets dtype and remat of the model
  teacher       config.objective.teacher gets its model and sha256
  vocabulary    config.data.vocab is the one that a model brought
  check         every key of the whole config and of each phase (config/schema.py)
  store         vocab_size, position_offset and zero_row (pad_id), tables, labels
"""

import copy
import math
import pathlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from bertjax.checkpoint import history, resume
from bertjax.config import presets, schema, sections, timeline
from bertjax.data_contracts import INFER
from bertjax.errors import UserError, amount
from bertjax.examples import readers
from bertjax.examples.labelled.common import from_config
from bertjax.models.layers import pad_id
from bertjax.sources import init_from, model_fields
from bertjax.train import facts as facts_lib
from bertjax.train.facts import NONE, Facts


class RunSpec(NamedTuple):
  """A run, resolved."""

  given: Any  # the config before
  config: Any  # with references resolved and all facts filled in
  timeline: timeline.Timeline  # its phases, whose configs have all facts, too
  facts: Facts = NONE  # that were filled in
  said: tuple[str, ...] = ()  # lines about what they have set, for people


def resolve(config: Any, facts: Facts = NONE) -> RunSpec:
  """Resolves a config, with its references, by the facts that are known; changes nothing.
  UserError: whatever is wrong with a key, or does not fit the facts."""
  given, config = config, copy.deepcopy(config)
  sections.complete(config)
  said = [*_steps(config, facts), *_classes(config, facts)]
  said += _source(config, facts) if facts.model else ()
  if facts.given is not None:
    said += presets.set_fields(config, facts.given)
  if facts.teacher:
    with config.objective.teacher.unlocked() as own:
      own.update(model=ConfigDict(dict(facts.teacher['model'])), sha256=facts.teacher['sha256'])
  data = config.data
  if facts.vocabulary and not (data.store or data.vocab or data.train_vocab.type):
    data.vocab = facts.vocabulary  # the one that a model brought
  line = schema.check(config)
  said += schema.notes(config.data)
  config = config.copy_and_resolve_references()
  spec = RunSpec(given, config, line, facts, tuple(said))
  return with_store(spec, facts) if facts.ids else spec


def with_store(spec: RunSpec, facts: Facts) -> RunSpec:
  """Returns a spec with what its store says, the last facts to be known. UserError: the model or
  its labels do not fit."""
  config, line = copy.deepcopy((spec.config, spec.timeline))
  for each in (config, *(phase.config for phase in line.parts)):
    _store(each.model, each.data.languages, facts)
  if 'task' in readers.of(config.data).reads and 'labels' in config.model:
    _labels(config, line)
  return spec._replace(config=config, timeline=line, facts=facts)


def begin(
  config: Any,
  workdir: pathlib.Path | str,
  given: Collection[str] | None = None,
  overrides: Iterable[str] | None = None,
) -> tuple[RunSpec, init_from.Source | None]:
  """Resolves the config of a run before it has its store, and opens what it begins with.
  `overrides` are keys that may have other values than in the run of the workdir; None compares
  none, as an evaluation does. UserError: as `resolve` and `check_workdir`, or a source, a teacher
  or examples that do not fit."""
  record = resume.stored(workdir)
  compares = overrides if record is None else overrides is not None
  moved = check_workdir(workdir, record, config, given, overrides or ()) if compares else ()
  spec = resolve(config, facts_lib.recalled(record, workdir, given, overrides or ()))
  facts, said, source = facts_lib.look_up(spec.config, spec.facts, workdir, record is not None)
  if facts != spec.facts:
    spec = resolve(config, facts)
  spec = counted(spec)
  return spec._replace(said=(*moved, *spec.said, *said)), source


def counted(spec: RunSpec) -> RunSpec:
  """Returns the spec with the classes of its labelled examples, where they are inferred, and with
  their number, where `config.epochs` needs it."""
  if 'task' in readers.of(spec.config.data).reads and not spec.facts.classes:
    found = []
    for phase in _tasks(spec):
      with timeline.named(phase):
        found.append(from_config.inferred(phase.config))
    if any(found):
      spec = resolve(spec.given, spec.facts._replace(classes=tuple(found)))
  facts = spec.facts
  if not spec.config.epochs or facts.given is None or 'total_steps' in facts.given:
    return spec
  counts = []
  for phase in _tasks(spec):
    with timeline.named(phase):
      counts.append((from_config.count(phase.config), phase.config.batch_size))
  return resolve(spec.given, facts._replace(examples=tuple(counts)))


def _tasks(spec: RunSpec) -> Sequence[timeline.PhaseConfig]:
  return spec.timeline.drawn or [timeline.PhaseConfig('main', spec.config)]


def check_workdir(
  workdir: pathlib.Path | str,
  record: Mapping[str, Any] | None,
  config: Any,
  given: Collection[str] | None = None,
  overrides: Iterable[str] = (),
) -> list[str]:
  """Compares a config, resolved with the facts of the run in a workdir, with that run's, and
  returns and raises as `resume.compare`. Both have the run's total_steps: with `warmup_steps =
  total_steps // 100` a longer run is the same run, while a warm-up that was given by hand must stay
  what it was. Both have its eval_steps, too, which the evaluations of tasks follow."""
  if record is not None:
    facts = facts_lib.recalled(record, workdir, {*(given or ()), 'total_steps'}, overrides)
    config = copy.deepcopy(config)
    for key in ('total_steps', 'eval_steps', 'checkpoint_steps'):
      config[key] = record['config'][key]
    config = resolve(config, facts if given is not None else facts._replace(given=None)).config
  return resume.compare(workdir, record, config, overrides)


def of_step(record: Mapping[str, Any], step: int) -> RunSpec:
  """Returns the spec that a step, counted from 1, of the run of a config.json had."""
  config = resume.as_config(history.config_of(record, step))
  return RunSpec(config, config, timeline.make(config))


def _steps(config: Any, facts: Facts) -> list[str]:
  """Sets total_steps by minutes that were timed, or by epochs of examples that were counted."""
  given, steps_given = facts.given, facts.given is not None and 'total_steps' in facts.given
  if config.minutes and steps_given:
    said = amount(config.minutes, 'minutes')
    config.minutes = 0.0
    return [f'config.total_steps={config.total_steps}, as given, and not {said}']
  if config.minutes and facts.steps:
    config.total_steps = facts.steps
    return [f'config.total_steps={facts.steps}, as this run found when it began']
  if given is None:
    return []
  if config.minutes:
    other = [f'phases.{name}' for name, phase in config.phases.items() if 'share' not in phase]
    for key in ['epochs'] if config.epochs else other[:1]:
      raise UserError(
        f'config.minutes={config.minutes:g} sets the steps of a run, or of phases by their share, '
        f'and there are config.{key}: leave it at 0 and set config.total_steps'
      )
  if not config.epochs:
    return []
  if config.data.reader != 'labelled':
    raise UserError(
      f'config.epochs={config.epochs:g} counts passes over labelled examples, and '
      f'config.data.reader={config.data.reader!r} has none: leave it at 0 and set '
      'config.total_steps'
    )
  if steps_given:
    said = amount(config.epochs, 'epochs')
    return [f'config.total_steps={config.total_steps}, as given, and not {said}']
  if not facts.examples:
    return []
  steps = sum(config.epochs * n / batch for n, batch in facts.examples)
  config.total_steps = max(math.ceil(steps), 1)
  once = math.ceil(sum(n / batch for n, batch in facts.examples))
  for key in ('eval_steps', 'checkpoint_steps'):
    if key not in given:
      config[key] = once
  examples = sum(n for n, _ in facts.examples)
  read = f'{amount(config.epochs, "epochs")} of {amount(examples, "examples")}'
  return [f'{read}: {amount(config.total_steps, "steps")}']


def _classes(config: Any, facts: Facts) -> list[str]:
  """Sets the classes of tasks that were inferred, each task's own in its phase."""
  said, drawn = [], len(facts.classes) > 1
  for name, names in zip(config.phases if drawn else [''], facts.classes, strict=False):
    given = config.phases[name] if name else config
    task = given.get('data', {}).get('task', {})
    if names and task.get('classes', config.data.task.get('classes')) == INFER:
      with given.unlocked():
        given.update(dict(data=dict(task=dict(classes=names))))
      where = f'config.phases.{name}' if name else 'config'
      said.append(f'{where}.data.task.classes={names}, those of the examples')
  return said


def _source(config: Any, facts: Facts) -> list[str]:
  """Sets the fields of config.model, and the languages, that config.init_from brings."""
  name = init_from.whole(config.init_from)
  if name:
    changed = model_fields.bring(config.model, config, facts.model)
    sections.complete(config)  # a run of an older bertjax may bring it
  else:
    changed = model_fields.set_fields(config.model, facts.model)
  if config.data.reader == 'labelled' and 'language' in dict(config.model.get('extra', ())):
    config.data.languages = config.data.languages or facts.named_languages
  which = f'{init_from.KEY}={name}' if name else init_from.KEY
  return [f'{which} sets config.model: {", ".join(changed)}'] if changed else []


def _store(model: Any, languages: Any, facts: Facts) -> None:
  """Fills in what the store says; a phase may have its own model."""
  if 0 < model.vocab_size < facts.ids:
    raise UserError(
      f'the store {facts.store} has {facts.ids} ids, but config.model.vocab_size='
      f'{model.vocab_size}: leave it at 0 to take the number of the store, or, of a '
      f'model that {init_from.KEY} brings, move its rows to the other vocabulary (--remap_vocab)'
    )
  model.vocab_size = model.vocab_size or facts.ids
  pad_id.fill(model, facts.pad)
  if 'extra' in model:
    languages = languages or facts.languages
    model.extra = tuple(_table(name, rows, languages) for name, rows in model.extra)


def _table(name: str, rows: int, languages: Sequence[str]) -> tuple[str, int]:
  """Returns a table of `config.model.extra`, with as many rows as there are languages where it has
  0."""
  if name != 'language':
    return name, rows
  if 0 < rows < len(languages):
    raise UserError(
      f'config.model.extra has ids for {rows} languages, but there are {len(languages)}, '
      f'{", ".join(languages)}: leave it at 0 to take their number'
    )
  return name, rows or len(languages)


def _labels(config: Any, line: timeline.Timeline) -> None:
  """Gives heads that have 0 classes as many as their task has; a phase that is drawn has a task and
  heads of its own, which the config then says too."""
  from_config.fill_labels(config.model, config.data.task)
  for phase in line.parts:
    with timeline.named(phase):
      known = from_config.fill_labels(phase.config.model, phase.config.data.task)
    if line.drawn:
      own = config.phases[phase.name]
      with own.unlocked():
        own.model = ConfigDict({**own.get('model', {}), **known})
