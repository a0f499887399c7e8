"""Our train step on a batch, as the bench calls it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from bertjax import models, registry, sharding
from bertjax.formats import huggingface
from bertjax.machine import malloc
from bertjax.models.layers import pad_id
from bertjax.objectives import combine
from bertjax.optim import optimizer, schedules
from bertjax.tools.bench.parts.synthetic import LANGUAGES
from bertjax.tools.preflight import topology
from bertjax.train import step as step_lib
from bertjax.types import Batch, Objective


class System(NamedTuple):
  """A training step before it is compiled."""

  objective: Objective  # the loss to minimise
  boxed: Any  # shapes of the variables, in flax.linen's partitioning boxes
  tx: Any  # the optimizer

  @property
  def variables(self) -> Any:
    """Their shapes, unboxed."""
    return nn.meta.unbox(self.boxed)


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
  return registry.find('bertjax.objectives', name, 'config.objective.name').OBJECTIVE.make(config)


def footprint(config: Any, batch: Batch) -> dict[str, int]:
  """Parameters, and bytes of them and the optimizer state; rows that pad the vocabulary count."""
  _, boxed, tx = system(config, batch)
  params = nn.meta.unbox(boxed)['params']
  held = jax.tree.leaves((params, jax.eval_shape(tx.init, params)))
  return dict(
    parameters=sum(leaf.size for leaf in jax.tree.leaves(params)),
    state_bytes=sum(leaf.size * leaf.dtype.itemsize for leaf in held),
  )


def flops(config: Any, batch: Batch) -> float:
  """FLOPs of a step by the model's own count, see `types.Objective.flops`."""
  return float(system(config, batch).objective.flops(batch))


def system(config: Any, batch: Batch) -> System:
  """Builds objective, variables (shapes alone) and optimizer of a config."""
  objective = objective_of(config)
  boxed = jax.eval_shape(objective.init, jax.random.key(0), batch)
  shapes, axes = nn.meta.unbox(boxed), sharding.logical_axes(boxed)
  tx, _ = optimizer.make(config.optimizer, shapes['params'], axes['params'])
  return System(objective, boxed, tx)


def lower(config: Any, batch: Batch, mesh: Mesh) -> tuple[Any, Any, Any]:
  """Returns our train step, lowered for the devices of a mesh, which need not be there: (lowered
  step of (state, batch, seed, rate), key -> state, shardings of the state)."""
  objective, boxed, tx = system(config, batch)
  rules = sharding.as_rules(config.sharding_rules)
  sharding.check_batch(config.batch_size, config.microbatches, mesh.shape, hosts=1)
  shapes, axes = nn.meta.unbox(boxed), sharding.logical_axes(boxed)
  specs = sharding.param_specs(shapes, axes, rules, mesh)
  opt_specs = optimizer.state_specs(tx, shapes['params'], specs['params'])
  phase = 'bench'

  def init(key: jax.Array) -> step_lib.State:
    variables = nn.meta.unbox(objective.init(key, batch))
    carry = {phase: objective.carry(batch)}
    return step_lib.State(jnp.int32(0), variables, tx.init(variables['params']), carry)

  whole: Any = PartitionSpec()
  layout = step_lib.State(whole, specs, opt_specs, {phase: sharding.batch_spec()})
  layout = sharding.named(mesh, layout)
  function = step_lib.make_train_step(
    objective,
    tx,
    phase,
    config.microbatches,
    reduce_dtype=config.reduce_dtype,
    sparse=optimizer.sparse(config.optimizer),
  )
  # Outside of the mesh: a key is made on a device.
  state = jax.eval_shape(init, jax.random.key(0))
  with jax.set_mesh(mesh), nn.logical_axis_rules(rules):
    # One sharding stands for every leaf below it, as in jit.
    places = jax.tree.map(lambda place, part: jax.tree.map(lambda _: place, part), layout, state)
    rows = sharding.named(mesh, sharding.batch_spec())
    placed = lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place)
    given = {k: placed(x, rows) for k, x in batch.items()}
    numbers = (placed(x, sharding.named(mesh, whole)) for x in (np.uint32(0), np.float32(0)))
    arguments = jax.tree.map(placed, state, places), given, *numbers
    jitted = jax.jit(function, donate_argnums=0, out_shardings=(layout, None))
    return jitted.lower(*arguments), init, layout


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
