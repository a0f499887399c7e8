"""From a config to everything that is fixed before the first step; every mistake is met here."""

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from bertjax import registry, sharding
from bertjax.data import examples as examples_lib
from bertjax.data.seqio_tasks import row_stream
from bertjax.data.store.reader import Store, open_store
from bertjax.data.vocab.vocabulary import load_vocabulary
from bertjax.errors import UserError, choose
from bertjax.optim import optimizer
from bertjax.train import timeline as timeline_lib
from bertjax.train.step import State
from bertjax.types import Batch, HeldOutRows, Objective, RowSource


class System(NamedTuple):
  """One phase, ready to be compiled.

  Attributes:
    phase: its name and config.
    objective: the training system.
    examples, held_out: rows to train and to evaluate on; held_out is None where there are none.
    template: a host batch of zeros in the shapes of the phase.
    evaluation: the objective on held-out rows: with `config.eval.model` and `config.eval.length`.
    eval_template: a batch of zeros in the shapes of evaluation.
    tx, schedule: the optimizer.
  """

  phase: timeline_lib.Phase
  objective: Objective
  examples: RowSource
  held_out: HeldOutRows | None
  template: Batch
  evaluation: Objective
  eval_template: Batch
  tx: Any
  schedule: Callable


class Run(NamedTuple):
  """A whole run before its first step.

  Attributes:
    timeline: step -> phase.
    systems: one per phase.
    store: the training store; of a run that streams, the vocabulary alone.
    mesh, rules: devices, and the table of (logical axis, mesh axes).
    abstract: the state as shapes with shardings; its carry has one entry per phase.
  """

  timeline: timeline_lib.Timeline
  systems: tuple[System, ...]
  store: Store
  mesh: Mesh
  rules: sharding.Rules
  abstract: State


def make_run(
  config: Any,
  store_path: str,
  devices: Sequence[Any] | None = None,
  fallback: str | None = None,
) -> Run:
  """Builds a run from its config.

  Args:
    config: the run's.
    store_path: its training store, with the held-out one inside; of a run that streams, the
      directory that `row_stream.ensure_vocabulary` returned.
    devices: of the mesh; None takes all.
    fallback: directory for the plans where the store's own cannot be written.

  Raises:
    UserError: whatever in the config or the store cannot work, before anything is compiled.
  """
  streams = config.data.reader == 'seqio'
  store = row_stream.open_vocabulary(store_path) if streams else open_store(store_path)
  config = config.copy_and_resolve_references()
  if config.data.vocab and not streams:
    _check_vocabulary(config.data, store)
  config.model.vocab_size = _vocab_size(config.model.vocab_size, store)
  if 'extra' in config.model:
    config.model.extra = _tables(config, store)
  timeline = timeline_lib.make(config)
  mesh = sharding.make_mesh(config.mesh, devices)
  rules = sharding.as_rules(config.sharding_rules)
  for phase in timeline.phases:
    _check(phase, mesh)
  held_out = open_store(store.path / 'heldout') if (store.path / 'heldout').exists() else None
  systems = tuple(_system(phase, store, held_out, fallback) for phase in timeline.phases)
  return Run(timeline, systems, store, mesh, rules, _abstract_state(systems, mesh, rules))


def _check_vocabulary(data: Any, store: Store) -> None:
  given, made_with = load_vocabulary(data.vocab, data.lowercase), store.meta['vocabulary']
  if given.sha256 != made_with['sha256']:
    raise UserError(
      f'the store {store.path} was made with another vocabulary ({made_with["size"]} ids, sha256 '
      f'{made_with["sha256"][:12]}) than config.data.vocab={data.vocab} ({given.size} ids, '
      f'{given.sha256[:12]}): leave config.data.vocab out, or prepare the store with it'
    )


def _vocab_size(size: int, store: Store) -> int:
  if size and store.vocabulary_size > size:
    raise UserError(
      f'the store {store.path} has {store.vocabulary_size} ids, but '
      f'config.model.vocab_size={size}: leave it at 0 to take the number of the store'
    )
  return size or store.vocabulary_size


def _tables(config: Any, store: Store) -> tuple[tuple[str, int], ...]:
  """`config.model.extra`, where the rows of the languages may be left to the store.

  Raises:
    UserError: a table that lacks rows for what the store has.
  """
  tables = dict(config.model.extra)
  if 'language' in tables:
    languages = config.data.languages or store.languages
    if not languages:
      store.column('language')  # refuses, with the remedy
    tables['language'] = tables['language'] or len(languages)
    if tables['language'] < len(languages):
      raise UserError(
        f'config.model.extra has ids for {tables["language"]} languages, but there are '
        f'{len(languages)}, {", ".join(languages)}: leave it at 0 to take their number'
      )
  roles = 1 + int(store.columns['role'].max()) if 'role' in store.columns else 0
  if tables.get('role', roles) < roles:
    raise UserError(
      f'config.model.extra has ids for {tables["role"]} roles, but {store.path} has {roles}: set '
      f"config.model.extra=(('role', {roles}),)"
    )
  return tuple(tables.items())


def _check(phase: timeline_lib.Phase, mesh: Mesh) -> None:
  config = phase.config
  hosts = jax.process_count()
  sharding.check_batch(config.batch_size, config.microbatches, mesh, hosts)
  sharding.check_batch(config.eval.batch_size, 1, mesh, hosts)
  if config.data.reader == 'seqio' and config.eval.data:
    raise UserError(
      f'config.eval.data changes {", ".join(config.eval.data)} of the held-out documents, which a '
      "stream has none of: leave it empty, or set config.data.reader='store'"
    )
  if config.data.reader == 'seqio' and config.eval.length:
    raise UserError(
      f'config.eval.length={config.eval.length}, but a stream has rows of config.length alone: '
      "leave it at 0, or set config.data.reader='store'"
    )
  longest = max(config.length, config.eval.length)
  room = longest
  if 'positions' in config.model:
    room = config.model.positions - config.model.position_offset
  if longest > room:
    raise UserError(
      f'phase {phase.name!r} has sequences of {longest} tokens, but the position table has room '
      f'for {room}: lower config.length or raise config.model.positions'
    )


def _system(
  phase: timeline_lib.Phase, store: Store, held_out: Store | None, fallback: str | None
) -> System:
  config = phase.config
  name = config.objective.name
  module = registry.find('bertjax.objectives', name, 'config.objective.name').OBJECTIVE
  objective = module.make(config)
  if config.data.reader == 'seqio':
    examples, evaluated = row_stream.open_streams(config, store)
  else:
    examples, evaluated = _examples(config, store, held_out, fallback)
  row = examples.batch(np.zeros(1, np.int64), shuffle=True)
  row.pop('dropped_B')
  template = {k: np.zeros((config.batch_size, *v.shape[1:]), v.dtype) for k, v in row.items()}
  boxed = jax.eval_shape(objective.init, jax.random.key(0), _shapes(template, 1))
  evaluation, eval_template = _evaluation(config, module, template, evaluated, boxed)
  params = nn.meta.unbox(boxed)['params']
  axes = sharding.logical_axes(boxed)['params']
  tx, schedule = optimizer.make(config.optimizer, params, axes)
  return System(
    phase, objective, examples, evaluated, template, evaluation, eval_template, tx, schedule
  )


def _evaluation(config: Any, module: Any, template: Batch, held_out: Any, boxed: Any):
  """The objective on held-out rows and a batch of zeros for it.

  Raises:
    UserError: `config.eval.model` has a field that the model lacks, or changes the parameters.
  """
  changed = copy.deepcopy(config)
  for name, value in config.eval.model.items():
    choose(name, config.model, 'config.eval.model')
    changed.model[name] = value
  changed.length = config.eval.length or config.length
  objective = module.make(changed)
  row = template
  if held_out is not None:
    row = held_out.batch(np.zeros(1, np.int64), shuffle=False)
  zeros = {
    k: np.zeros((config.eval.batch_size, *row[k].shape[1:]), v.dtype) for k, v in template.items()
  }
  found = jax.eval_shape(objective.init, jax.random.key(0), _shapes(zeros, 1))
  if jax.tree.map(lambda x: x.shape, found) != jax.tree.map(lambda x: x.shape, boxed):
    raise UserError(
      f'config.eval.model={dict(config.eval.model)} changes the shapes of parameters, which '
      'evaluation takes from training: override only what leaves them'
    )
  return objective, zeros


def _examples(config: Any, store: Store, held_out: Store | None, fallback: str | None):
  """The rows of the stores: those to train on, and those to evaluate on or None."""
  tables = [name for name, _ in config.model.extra] if 'extra' in config.model else []
  make = functools.partial(examples_lib.make_examples, fallback=fallback, tables=tables)
  examples = make(store, config.data, config.length, config.seed, rows=config.batch_size)
  if held_out is None:
    return examples, None
  data = copy.deepcopy(config.data)
  timeline_lib.override(data, config.eval.data, 'config.eval.data')
  data = examples_lib.held_out_data(data)
  seed, length = config.eval.seed, config.eval.length or config.length
  return examples, make(held_out, data, length, seed, rows=config.eval.batch_size)


def _shapes(template: Batch, rows: int | None = None) -> dict[str, jax.ShapeDtypeStruct]:
  """The template as shapes, with another number of rows if given."""
  return {
    k: jax.ShapeDtypeStruct((rows or v.shape[0], *v.shape[1:]), v.dtype)
    for k, v in template.items()
  }


def initial_variables(system: System, seed: int) -> Any:
  """The variables before the first step, unboxed; a pure function of the seed."""
  zeros = {k: np.zeros((1, *v.shape[1:]), v.dtype) for k, v in system.template.items()}
  return nn.meta.unbox(system.objective.init(jax.random.key(seed), zeros))


def _abstract_state(systems: tuple[System, ...], mesh: Mesh, rules: sharding.Rules) -> State:
  """Shapes and shardings of the state; all phases must share variables and optimizer state."""
  first = systems[0]
  states, specs = [], []
  for system in systems:
    boxed = jax.eval_shape(system.objective.init, jax.random.key(0), _shapes(system.template, 1))
    variables = nn.meta.unbox(boxed)
    variable_specs = sharding.param_specs(variables, sharding.logical_axes(boxed), rules, mesh)
    opt_state = jax.eval_shape(system.tx.init, variables['params'])
    states.append((variables, opt_state))
    specs.append(
      (
        variable_specs,
        optimizer.state_specs(system.tx, variables['params'], variable_specs['params']),
      )
    )
    if jax.tree.structure(states[-1]) != jax.tree.structure(states[0]):
      raise UserError(
        f'phase {system.phase.name!r} has other parameters or optimizer state than phase '
        f'{first.phase.name!r}: phases of one run must share both'
      )
  carries = {s.phase.name: jax.eval_shape(s.objective.carry, _shapes(s.template)) for s in systems}
  carry_specs = jax.tree.map(lambda _: sharding.batch_spec(), carries)
  step = jax.ShapeDtypeStruct((), np.int32)
  (variables, opt_state), (variable_specs, opt_specs) = states[0], specs[0]
  abstract = State(step, variables, opt_state, carries)
  shardings = sharding.named(mesh, State(PartitionSpec(), variable_specs, opt_specs, carry_specs))
  return jax.tree.map(
    lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), abstract, shardings
  )
