"""Our train step on a synthetic batch, as the bench calls it."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from bertjax import registry, sharding
from bertjax.data import examples as examples_lib
from bertjax.data.masking import xlnet_permutation
from bertjax.errors import UserError
from bertjax.optim import optimizer
from bertjax.train import step as step_lib
from bertjax.types import Batch, Objective

# Vocabulary where the config leaves it to the store: of the published base models, and of XLM-15.
VOCAB_SIZES = {
  'bert': 30522, 'roberta': 50265, 'albert': 30000, 'ernie': 18000, 'xlm': 95000, 'xlnet': 32000,
}  # fmt: skip
LANGUAGES = 15  # of XLM-15, likewise


def sized(config: Any, batch_size: int, length: int) -> Any:
  """A config file's recipe for rows of a size, with a vocabulary where the store would tell it.

  Raises:
    UserError: the model has fewer positions.
  """
  config.batch_size, config.length = batch_size, length
  config = config.copy_and_resolve_references()
  model = config.model
  if 'positions' in model and length > model.positions - model.position_offset:
    room = model.positions - model.position_offset
    raise UserError(f'--length must be at most {room}, the position table; got {length}')
  published = VOCAB_SIZES.get(model.family, VOCAB_SIZES['bert'])
  model.vocab_size = model.vocab_size or config.data.train_vocab.size or published
  if 'extra' in model:
    model.extra = tuple((name, rows or LANGUAGES) for name, rows in model.extra)
  return config


def synthetic_batch(config: Any) -> Batch:
  """A batch of full rows of random ids in the shapes of the recipe, one example a row."""
  if config.model.name == 'xlnet':
    return _permuted(config)
  if config.model.name == 'transformer_xl':
    return _stream(config)
  rng, rows, length = np.random.default_rng(config.seed), config.batch_size, config.length
  recipe = examples_lib.open_recipe(config.data)
  slots = recipe.masking.slots(recipe.mask_options, length)
  vocab = config.model.vocab_size
  column_BT = np.broadcast_to(np.arange(length, dtype=np.int32), (rows, length))
  token_BT = rng.integers(5, vocab, (rows, length), dtype=np.int32)
  chosen = [np.sort(rng.choice(length, slots, replace=False)) for _ in range(rows)]
  batch = dict(
    token_BT=token_BT,
    example_BT=np.ones((rows, length), np.int32),
    type_BT=(column_BT >= length // 2).astype(np.int32) * (config.model.types > 1),
    position_BT=column_BT,
    target_pos_BP=np.stack(chosen).astype(np.int32),
    target_BP=rng.integers(5, vocab, (rows, slots), dtype=np.int32),
    weight_BP=np.ones((rows, slots), np.float32),
    masked_BP=np.ones((rows, slots), np.float32),
    first_BG=np.zeros((rows, 1), np.int32),
    example_weight_BG=np.ones((rows, 1), np.float32),
  )
  if recipe.mask_name == 'spanbert':  # each target is a span of its own
    left_BP, right_BP = batch['target_pos_BP'] - 1, batch['target_pos_BP'] + 1
    batch |= dict(
      left_BP=np.maximum(left_BP, 0),
      right_BP=np.minimum(right_BP, length - 1),
      offset_BP=np.zeros((rows, slots), np.int32),
      pair_weight_BP=np.ones((rows, slots), np.float32),
    )
  for name, rows_of in config.model.extra:
    batch[f'{name}_BT'] = rng.integers(0, rows_of, (rows, length), dtype=np.int32)
  for name, classes in config.model.labels:
    batch[f'{name}_BG'] = rng.integers(0, classes, (rows, 1), dtype=np.int32)
  return batch


def _stream(config: Any) -> Batch:
  """Columns of a stream: every token is read and the next one predicted; no column starts anew.

  Ids are as frequent as Zipf's law has them, which is what clusters of words cost.
  """
  rng, shape = np.random.default_rng(config.seed), (config.batch_size, config.length)
  column_BT = np.broadcast_to(np.arange(config.length, dtype=np.int32), shape)
  ids = lambda: (config.model.vocab_size ** rng.random(shape)).astype(np.int32) - 1
  ones = np.ones(shape, np.float32)
  return dict(
    token_BT=ids(), example_BT=np.ones(shape, np.int32), target_pos_BP=column_BT, target_BP=ids(),
    weight_BP=ones, masked_BP=ones, start_B=np.zeros(shape[0], np.int32),
  )  # fmt: skip


def _permuted(config: Any) -> Batch:
  """XLNet's: two parts with their targets and orders, A and B in the second; no row starts anew."""
  rng, rows, length = np.random.default_rng(config.seed), config.batch_size, config.length
  recipe = examples_lib.open_recipe(config.data)
  reuse, vocab = recipe.plan_options.reuse_len, config.model.vocab_size
  column_BT = np.broadcast_to(np.arange(length, dtype=np.int32), (rows, length))
  chosen_BT = np.zeros((rows, length), bool)
  for count, part in zip(
    xlnet_permutation.goals(recipe.mask_options, length),
    (slice(reuse), slice(reuse, None)),
    strict=True,
  ):
    turn_BT = np.argsort(rng.random(chosen_BT[:, part].shape), 1)
    chosen_BT[:, part] = turn_BT < count
  order_BT = rng.permuted(column_BT % reuse, axis=1)
  later_BT = (column_BT >= reuse) * (reuse + 1)
  key_BT = np.where(chosen_BT, order_BT, -1)
  slots = int(chosen_BT[0].sum())
  batch = dict(
    token_BT=rng.integers(5, vocab, (rows, length), dtype=np.int32),
    example_BT=np.ones((rows, length), np.int32),
    type_BT=(column_BT >= (reuse + length) // 2).astype(np.int32) + (column_BT == length - 1),
    target_pos_BP=np.nonzero(chosen_BT)[1].reshape(rows, slots).astype(np.int32),
    target_BP=rng.integers(5, vocab, (rows, slots), dtype=np.int32),
    weight_BP=np.ones((rows, slots), np.float32),
    order_q_BT=(np.where(chosen_BT, key_BT, 0) + later_BT).astype(np.int32),
    order_k_BT=(key_BT + later_BT).astype(np.int32),
    start_B=np.zeros(rows, np.int32),
  )
  if recipe.plan_options.both_directions and rows % 2 == 0:
    batch['direction_B'] = np.where(np.arange(rows) < rows // 2, 1, -1).astype(np.int32)
  return batch


def footprint(config: Any, batch: Batch) -> dict[str, int]:
  """Parameters, and bytes of them and the optimizer state; rows that pad the vocabulary count."""
  _, boxed, tx, _ = _system(config, batch)
  params = nn.meta.unbox(boxed)['params']
  held = jax.tree.leaves((params, jax.eval_shape(tx.init, params)))
  return dict(
    parameters=sum(leaf.size for leaf in jax.tree.leaves(params)),
    state_bytes=sum(leaf.size * leaf.dtype.itemsize for leaf in held),
  )


def _system(config: Any, batch: Batch):
  """The objective, its variables as boxed shapes, the optimizer and its schedule."""
  name = config.objective.name
  objective = registry.find('bertjax.objectives', name, 'config.objective.name').make(config)
  boxed = jax.eval_shape(objective.init, jax.random.key(0), batch)
  shapes, axes = nn.meta.unbox(boxed), sharding.logical_axes(boxed)
  return objective, boxed, *optimizer.make(config.optimizer, shapes['params'], axes['params'])


def initial_variables(objective: Objective, batch: Batch, seed: int) -> Any:
  """The objective's variables from a seed, unboxed."""
  return nn.meta.unbox(objective.init(jax.random.key(seed), batch))


def lower(config: Any, batch: Batch, mesh: Mesh) -> tuple[Any, Any, Any]:
  """Our train step, lowered for the devices of a mesh, which need not be there.

  Returns:
    (lowered step of (state, batch), key -> state, shardings of the state).
  """
  objective, boxed, tx, schedule = _system(config, batch)
  rules = sharding.as_rules(config.sharding_rules)
  sharding.check_batch(config.batch_size, config.microbatches, mesh, hosts=1)
  shapes, axes = nn.meta.unbox(boxed), sharding.logical_axes(boxed)
  specs = sharding.param_specs(shapes, axes, rules, mesh)
  opt_specs = optimizer.state_specs(tx, shapes['params'], specs['params'])
  phase = 'bench'

  def init(key: jax.Array) -> step_lib.State:
    variables = nn.meta.unbox(objective.init(key, batch))
    carry = {phase: objective.carry(batch)}
    return step_lib.State(jax.numpy.int32(0), variables, tx.init(variables['params']), carry)

  whole: Any = PartitionSpec()
  layout = step_lib.State(whole, specs, opt_specs, {phase: sharding.batch_spec()})
  layout = sharding.named(mesh, layout)
  function = step_lib.make_train_step(
    objective, tx, schedule, phase, config.microbatches, config.seed
  )
  # Outside of the mesh: a key is made on a device.
  state = jax.eval_shape(init, jax.random.key(0))
  with jax.set_mesh(mesh), nn.logical_axis_rules(rules):
    # One sharding stands for every leaf below it, as in jit.
    places = jax.tree.map(lambda place, part: jax.tree.map(lambda _: place, part), layout, state)
    rows = sharding.named(mesh, sharding.batch_spec())
    placed = lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place)
    arguments = jax.tree.map(placed, state, places), {k: placed(x, rows) for k, x in batch.items()}
    jitted = jax.jit(function, donate_argnums=0, out_shardings=(layout, None))
    return jitted.lower(*arguments), init, layout


def make_step(config: Any, batch: Batch) -> Callable[[], None]:
  """Our compiled train step as a call that runs it once on its own state and waits for it."""
  mesh, rules = sharding.make_mesh(config.mesh), sharding.as_rules(config.sharding_rules)
  lowered, init, layout = lower(config, batch, mesh)
  with jax.set_mesh(mesh), nn.logical_axis_rules(rules):
    state = jax.jit(init, out_shardings=layout)(jax.random.key(config.seed))
  compiled, device_batch = lowered.compile(), sharding.put_batch(batch, mesh)

  def call() -> None:
    nonlocal state
    state, metrics = compiled(state, device_batch)
    jax.block_until_ready((state, metrics))

  return call
