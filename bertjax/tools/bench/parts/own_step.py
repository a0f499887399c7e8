"""Our train step on a batch, as the bench calls it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from bertjax import models, registry, sharding
from bertjax.formats import huggingface
from bertjax.machine import malloc
from bertjax.models.layers import pad_id
from bertjax.objectives import combine
from bertjax.optim import optimizer, schedules
from bertjax.tools.bench.parts.synthetic import LANGUAGES
from bertjax.tools.preflight import topology
from bertjax.train import abstract_state
from bertjax.train import step as step_lib
from bertjax.types import Batch, Objective

PHASE = 'bench'  # the key of the state's one carry


class System(NamedTuple):
  """A training step before it is compiled, as `abstract_state.make` takes a phase."""

  name: str  # of the phase
  template: Batch
  objective: Objective  # the loss to minimise
  variables: Any  # as shapes
  axes: Any  # logical axis names of each variable
  tx: Any  # the optimizer


def sized(config: Any, batch_size: int, length: int) -> Any:
  """Returns a config's recipe for rows of a size, with what a store would tell. The vocabulary is
  the config's, else that which the recipe trains, else the published one of the family; languages
  are as many as `synthetic.LANGUAGES`. Raises UserError if the model has fewer positions."""
  config.batch_size, config.length = batch_size, length
  config = config.copy_and_resolve_references()
  model = config.model
  pad_id.fill(model, 1)  # any id: it costs no time
  trained = config.data.train_vocab.size
  model.vocab_size = model.vocab_size or trained or huggingface.published_vocabulary(model.family)
  if 'extra' in model:
    model.extra = tuple((name, rows or LANGUAGES) for name, rows in model.extra)
  models.build(model).require_room(length, '--length')
  return config


def drop_nothing(model: Any) -> None:
  """Sets all rates of dropout of `config.model` to 0."""
  rates = {key: value for key, value in model.items() if key.endswith('dropout')}
  model.update({key: type(value)(0) for key, value in rates.items()})


def side_by_side(configs: Mapping[str, Any], factors: Sequence[float]) -> Any:
  """Returns the config of a step that sums the losses of phases, phase -> `sized` config, by their
  factors, a row of each beside those of the others."""
  together = next(iter(configs.values())).copy_and_resolve_references()
  together.length = sum(config.length for config in configs.values())
  with together.unlocked():
    together.summed = dict(phases=dict(configs), factors=tuple(factors))
  return together


def phases_of(config: Any) -> Mapping[str, Any]:
  """Phase -> config, of a step that takes several at once; {} of others."""
  return config.summed.phases if 'summed' in config else {}


def objective_of(config: Any) -> Objective:
  """Builds the objective that a config trains; with phases, the sum of theirs."""
  if phases := phases_of(config):
    each = {name: objective_of(c) for name, c in phases.items()}
    rows = {name: config.batch_size for name in each}
    return combine.together(each, config.summed.factors, rows)
  name = config.objective.name
  return registry.chosen('bertjax.objectives', name, 'config.objective.name').make(config)


def footprint(config: Any, batch: Batch) -> dict[str, int]:
  """Parameters, and bytes of them and the optimizer state; rows that pad the vocabulary count."""
  made = system(config, batch)
  params = made.variables['params']
  held = jax.tree.leaves((params, jax.eval_shape(made.tx.init, params)))
  return dict(
    parameters=sum(leaf.size for leaf in jax.tree.leaves(params)),
    state_bytes=sum(leaf.size * leaf.dtype.itemsize for leaf in held),
  )


def flops(config: Any, batch: Batch) -> float:
  """FLOPs of a step by the model's own count, see `types.Objective.flops`."""
  return float(objective_of(config).flops(batch))


def system(config: Any, batch: Batch) -> System:
  """Builds objective, variables (shapes alone) and optimizer of a config."""
  objective = objective_of(config)
  variables, axes = abstract_state.variables_of(objective, batch)
  tx, _ = optimizer.make(config.optimizer, variables['params'], axes['params'])
  return System(PHASE, batch, objective, variables, axes, tx)


def lower(config: Any, batch: Batch, mesh: Mesh) -> tuple[Any, Any, Any]:
  """Returns our train step, lowered for the devices of a mesh, which need not be there: (lowered
  step of (state, batch, seed, rate), key -> state, shardings of the state)."""
  sharding.check_batch(config.batch_size, config.microbatches, mesh.shape, hosts=1)
  devices = sharding.Devices(mesh, sharding.as_rules(config.sharding_rules))
  made: Any = system(config, batch)
  objective, tx = made.objective, made.tx
  state = abstract_state.make([made], [made], devices)
  layout = jax.tree.map(lambda x: x.sharding, state)

  def init(key: jax.Array) -> step_lib.State:
    variables = nn.meta.unbox(objective.init(key, batch))
    carry = {PHASE: objective.carry(batch)}
    return step_lib.State(jnp.int32(0), variables, tx.init(variables['params']), carry)

  function = step_lib.make_train_step(
    objective,
    tx,
    PHASE,
    config.microbatches,
    reduce_dtype=config.reduce_dtype,
    sparse=optimizer.sparse(config.optimizer),
  )
  rows = NamedSharding(mesh, sharding.batch_spec())
  given = {k: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rows) for k, x in batch.items()}
  number = lambda dtype: jax.ShapeDtypeStruct((), dtype, sharding=layout.step)
  jitted = jax.jit(function, donate_argnums=0, out_shardings=(layout, None))
  with jax.set_mesh(mesh), nn.logical_axis_rules(devices.rules):
    return jitted.lower(state, given, number(np.uint32), number(np.float32)), init, layout


def memory(config: Any, batch: Batch) -> int:
  """Returns the bytes that our train step takes on the devices here, by its compiler's account:
  state, batch, what it keeps between the two passes, and its code."""
  lowered, _, _ = lower(config, batch, sharding.make_mesh(config.mesh))
  return topology.memory(lowered.compile())['all_bytes']


def make_step(config: Any, batch: Batch) -> Callable[[], None]:
  """Returns our compiled train step as a call that runs it once on its own state and waits for
  it."""
  mesh, rules = sharding.make_mesh(config.mesh), sharding.as_rules(config.sharding_rules)
  lowered, init, layout = lower(config, batch, mesh)
  with jax.set_mesh(mesh), nn.logical_axis_rules(rules):
    state = jax.jit(init, out_shardings=layout)(jax.random.key(config.seed))
  compiled, device_batch = lowered.compile(), sharding.put_batch(batch, mesh)
  numbers = np.uint32(config.seed), schedules.make(config.optimizer.schedule)(1)
  malloc.keep_pages(compiled.memory_analysis().temp_size_in_bytes)

  def call() -> None:
    nonlocal state
    state, metrics = compiled(state, device_batch, *numbers)
    jax.block_until_ready((state, metrics))

  return call
