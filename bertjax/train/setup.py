"""From a config to everything that is fixed before the first step; every mistake is met here."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bertjax import models, registry, sharding
from bertjax.config import timeline as timeline_lib
from bertjax.errors import UserError, choose
from bertjax.examples import loader, readers
from bertjax.objectives import labels_of
from bertjax.objectives.combine import over_all
from bertjax.optim import optimizer
from bertjax.store.reader import Store, open_beside
from bertjax.train import abstract_state, evaluation, resolve
from bertjax.train import phase as phase_lib
from bertjax.train import step as step_lib
from bertjax.train.phase import Phase
from bertjax.train.step import State
from bertjax.types import Batch, Factory, Objective, Subject
from bertjax.vocab.vocabulary import Vocabulary, read_vocabulary


class Run(NamedTuple):
  """A whole run before its first step.

  Attributes:
    spec: its config, facts and phases.
    timeline: step -> phase.
    phases: in order; those that are trained as one are one.
    store: the training store; of a run that streams, the vocabulary alone.
    vocabulary: what the store's ids mean; None of a store without its files.
    devices: the mesh, and the table of (logical axis, mesh axes).
    abstract: the state as shapes with shardings; its carry has one entry per phase.
  """

  spec: resolve.RunSpec
  timeline: timeline_lib.Timeline
  phases: tuple[Phase, ...]
  store: Store
  vocabulary: Vocabulary | None
  devices: sharding.Devices
  abstract: State

  @property
  def config(self) -> Any:
    """The resolved config."""
    return self.spec.config

  def at(self, done: int) -> tuple[Phase, int]:
    """Returns the phase of step number `done` (from 1), and the number of its batch there."""
    number, index = self.timeline.at(done - 1)
    return self.phases[number], index

  @property
  def parts(self) -> tuple[Phase, ...]:
    """The phases of the config: those that are trained as one apart."""
    return tuple(part for phase in self.phases for part in phase.parts or (phase,))

  def evals(self, done: int) -> tuple[evaluation.EvalSet, ...]:
    """Returns the sets that judge the model after a step: of its phase, or of all that are side by
    side."""
    phases = self.parts if self.timeline.side_by_side else (self.at(done)[0],)
    return tuple(each for phase in phases for each in phase.evals)


def make_run(
  given: Any, store_path: str, devices: Sequence[Any] | None = None, fallback: str | None = None
) -> Run:
  """Builds a run, of a `RunSpec` without the facts of the store or a config that needs no other
  ones, over its store: what its reader's `ensure` returned. The mesh takes all devices by default;
  `fallback` is a directory for plans where the store's own cannot be written. Raises UserError for
  whatever in the config or the store cannot work, before anything is compiled."""
  spec = given if isinstance(given, resolve.RunSpec) else resolve.resolve(given)
  store = readers.of(spec.config.data).open(store_path)
  ids, pad = store.vocabulary_size, store.special['pad']
  own = dict(store=str(store.path), ids=ids, pad=pad, languages=tuple(store.languages))
  spec = resolve.with_store(spec, spec.facts._replace(**own))
  config, timeline = spec.config, spec.timeline
  _check_store(store, config.data, config.model)
  mesh = sharding.make_mesh(config.mesh, devices)
  placed = sharding.Devices(mesh, sharding.as_rules(config.sharding_rules))
  beside = store.path / 'heldout'
  held_out = open_beside(store, beside) if beside.exists() else None
  objectives, parts = {}, {}
  for part in timeline.parts:
    with timeline_lib.named(part):
      # First, since it says whether the model is of the kind whose rows are then checked.
      objectives[part.name] = _factory(part.config.objective.name).make(part.config)
      _check(part, mesh)
  if timeline.drawn:
    heads = {p.name: models.head_paths(p.config.model) for p in timeline.drawn}
    objectives = over_all(objectives, heads)
  for part in timeline.parts:
    with timeline_lib.named(part):
      parts[part.name] = _phase(
        part, objectives[part.name], store, held_out, placed, spec, fallback
      )
  labelled = {name: part for name, part in parts.items() if readers.of(part.config.data).unit}
  lengths = {name: part.examples.most for name, part in labelled.items()}
  spec = spec._replace(facts=spec.facts._replace(lengths=lengths))
  _check_best(config, [each for part in parts.values() for each in part.evals])
  _check_average(config, timeline.parts)
  phases = tuple(
    phase_lib.together(p.name, [parts[own.name] for own in p.combined.parts], p.combined)
    if p.combined
    else parts[p.name]
    for p in timeline.phases
  )
  abstract = abstract_state.make([*parts.values()], phases, placed)
  return Run(spec, timeline, phases, store, store.vocabulary, placed, abstract)


def _factory(name: str) -> Factory:
  return registry.chosen('bertjax.objectives', name, 'config.objective.name')


def _check_store(store: Store, data: Any, model: Any) -> None:
  """Refuses a store of another vocabulary, or without what a table of the model is to read."""
  reads = readers.of(data).reads
  if data.vocab and readers.of(data).text:
    given, made_with = read_vocabulary(data.vocab, data.lowercase), store.meta['vocabulary']
    if not store.reads_as(given, given.meta):
      raise UserError(
        f'the store {store.path} was made with another vocabulary, or other rules of it ('
        f'{made_with["size"]} ids, sha256 {made_with["sha256"][:12]}), than config.data.vocab='
        f'{data.vocab} ({given.size} ids, {given.sha256[:12]}): leave config.data.vocab and '
        'config.data.lowercase out, or prepare the store with them'
      )
  tables = dict(model.get('extra', ()))
  if 'language' in tables and not (data.languages or store.languages) and 'task' not in reads:
    store.column('language')  # refuses, with the remedy
  roles = (
    1 + int(store.columns['role'].max()) if 'role' in tables and 'role' in store.columns else 0
  )
  if tables.get('role', roles) < roles:
    raise UserError(
      f'config.model.extra has ids for {tables["role"]} roles, but {store.path} has {roles}: set '
      f"config.model.extra=(('role', {roles}),)"
    )


def _check(phase: timeline_lib.PhaseConfig, mesh: Mesh) -> None:
  config = phase.config
  sharding.check_batch(config.batch_size, config.microbatches, mesh.shape, jax.process_count())
  if (ways := mesh.shape['sequence']) > 1:
    _check_columns(config.model, config.length, readers.of(config.data).unit, ways)
  # An evaluation with a model of its own is checked by its objective.
  alike = [s for s in config.evals.values() if 'length' in s and not s.get('model')]
  lengths = [config.length, *(s.length for s in alike)]
  models.build(config.model).require_room(max(lengths), 'config.length or that of an evaluation')


def _check_columns(model: Any, length: int, unit: int, ways: int) -> None:
  """Refuses columns that the mesh does not divide, and models whose columns are not a row's."""
  if not models.build(model).divides_columns:
    raise UserError(
      f'config.mesh.sequence={ways} divides the columns of a row, and '
      f'config.model.name={model.name!r} has others beside them: set it to 1'
    )
  if length % ways:
    raise UserError(f'config.length={length} must be a multiple of config.mesh.sequence={ways}')
  if unit % ways:
    raise UserError(
      f'labelled rows have lengths that are multiples of {unit}, which '
      f'config.mesh.sequence={ways} does not divide: set it to a divisor'
    )


def _check_best(config: Any, evals: Sequence[evaluation.EvalSet]) -> None:
  """Refuses a metric that no evaluation gives, unless nothing is held out to evaluate on."""
  best, asks = config.best, {'best.patience': config.best.patience}
  asks['optimizer.average'] = config.optimizer.average
  known = evaluation.score_names(evals)
  if known:
    for name in best.get('mean', ()):
      choose(name, known, 'config.best.mean')
    mean = {evaluation.MEAN} if best.get('mean') else set()
    choose(best.metric, known | mean, 'config.best.metric')
  for key in (key for key, value in asks.items() if value and not known):
    raise UserError(
      f'config.{key}={asks[key]} follows the scores of a run, and there is nothing to evaluate on: '
      'set it to 0, or give config.data.heldout (labelled examples: config.data.dev)'
    )


def _check_average(config: Any, parts: Sequence[timeline_lib.PhaseConfig]) -> None:
  """Refuses a phase that averages otherwise than the run, whose scores say when it begins."""
  for part in parts:
    if (own := part.config.optimizer.average) != config.optimizer.average:
      raise UserError(
        f'config.phases.{part.name}.optimizer.average={own}, and averaging follows the scores of '
        f'all phases together: expected config.optimizer.average={config.optimizer.average} in '
        'each; set it there alone'
      )


def _phase(
  given: timeline_lib.PhaseConfig,
  objective: Objective,
  store: Store,
  held_out: Store | None,
  devices: sharding.Devices,
  spec: resolve.RunSpec,
  fallback: str | None,
) -> Phase:
  config = given.config
  examples: Any  # `TrainingRows`; of a reader with a unit labelled `Rows`
  examples, stream = readers.of(config.data).rows(config, store, fallback)
  row = examples.template()
  template = {k: np.zeros((config.batch_size, *v.shape[1:]), v.dtype) for k, v in row.items()}
  if readers.of(config.data).unit:
    known, platform = spec.facts.lengths, devices.mesh.devices.flat[0].platform
    seen = config.total_steps * config.batch_size / max(len(spec.timeline.drawn), 1)
    examples = (
      examples.fewer(objective.flops, template, seen, platform)
      if known is None
      else dataclasses.replace(examples, most=known.get(given.name, examples.most))
    )
  _check_labels(config.model, config.data, template)
  variables, axes = abstract_state.variables_of(objective, template)
  axes = axes['params']
  tx, schedule = optimizer.make(config.optimizer, variables['params'], axes)
  subject = Subject(
    config=config,
    make=_factory(config.objective.name).make,
    objective=objective,
    shapes=lambda objective, batch: abstract_state.variables_of(objective, batch)[0],
    variables=variables,
    template=template,
    store=store,
    held_out=held_out,
    stream=stream,
    fallback=fallback,
    ways=devices.ways,
    eval_step=lambda objective: _at_first_use(step_lib.make_eval_step(objective), devices),
    compile=lambda function: _at_first_use(
      function, devices, out_shardings=NamedSharding(devices.mesh, PartitionSpec())
    ),
    put=devices.put_global,
    shared={},
  )
  evals = evaluation.make(subject, given.name if spec.timeline.side_by_side else '')
  rules = optimizer.describe(config.optimizer, variables['params'], axes)
  batches = loader.Batches(examples, config.batch_size)
  return Phase(given.name, subject, batches, tx, schedule, devices, axes, evals, rules)


def _at_first_use(function: Callable, devices: sharding.Devices, **options: Any) -> Callable:
  """Returns a function of (variables, ..), compiled once for each set of shapes that the arguments
  behind the variables have."""
  compiled: dict[Any, Any] = {}

  def call(variables: Any, *others: Any) -> Any:
    leaves, tree = jax.tree.flatten(others)
    shapes = (tree, *(leaf.shape for leaf in leaves))
    if shapes not in compiled:
      compiled[shapes] = devices.compile(function, (variables, *others), **options)
    return compiled[shapes](variables, *others)

  return call


def _check_labels(model: Any, data: Any, template: Batch) -> None:
  """Refuses rows of several texts for a model that reads one, and heads for labels that the plan or
  task does not give; of a task that may be unlabelled the objective says whether it needs them."""
  if models.build(model).one_text and (texts := template['first_BG'].shape[1]) > 1:
    raise UserError(
      f'config.model.name={model.name!r} reads one text a row, got {texts}: expected rows of one, '
      "as of config.data.task.name='classify', or another model"
    )
  labels = labels_of(model)
  free = data.task.get('unlabelled', False)
  there = lambda name: free or {f'{name}_BG', f'{name}_BGC'} & {*template}
  lacking = [name for name, count in labels if not there(name) or not count]
  if lacking:
    given = {key.removesuffix('_BG') for key in template if key.endswith('_BG')}
    known = ', '.join(sorted(given - {'first', 'example_weight'})) or 'no label'
    giver = (
      f'the plan {data.plan.name!r}' if 'name' in data.plan else f'the task {data.task.name!r}'
    )
    raise UserError(
      f'config.model.labels has {", ".join(lacking)}, but {giver} gives {known}: leave it out, or '
      'take one that does'
    )
