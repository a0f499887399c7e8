"""python -m bertjax.bench step: the compiled train step (forward, backward, clip, optimizer).

  python -m bertjax.bench step --config=configs/bert.py:base --batch_size=8 --length=128 \
      --against=transformers

The batch is synthetic, full rows in the shapes of the recipe; dropout is on. With --against the
same model, batch and optimizer run in PyTorch in alternation; `ratio` is our tokens/s over theirs.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from absl import app, flags
from ml_collections import config_flags

from bertjax import names, optim, sharding, step
from bertjax.bench import timing
from bertjax.data import mlm
from bertjax.types import Batch

# Vocabulary where the config leaves it to the store: bert-base-uncased, roberta-base.
VOCAB_SIZES = {'bert': 30522, 'roberta': 50265}

_CONFIG = config_flags.DEFINE_config_file('config', None, 'Config file, e.g. configs/bert.py:base.')
_BATCH_SIZE = flags.DEFINE_integer('batch_size', 8, 'Rows per step.', lower_bound=1)
_LENGTH = flags.DEFINE_integer('length', 128, 'Tokens per row.', lower_bound=8)
_AGAINST = flags.DEFINE_enum('against', None, ['transformers'], 'Also time this rival.')
_CALLS = flags.DEFINE_integer('calls', 20, 'Timed calls of each side.', lower_bound=1)
_WARMUP = flags.DEFINE_integer('warmup', 3, 'Discarded calls of each side.', lower_bound=3)
flags.mark_flag_as_required('config')


def synthetic_batch(config: Any) -> Batch:
  """A batch of full rows of random ids in the shapes of a masked-LM recipe, one example a row."""
  rng, rows, length = np.random.default_rng(config.seed), config.batch_size, config.length
  slots, vocab = mlm.slots(config.data, length), config.model.vocab_size
  column_BT = np.broadcast_to(np.arange(length, dtype=np.int32), (rows, length))
  token_BT = rng.integers(5, vocab, (rows, length), dtype=np.int32)
  chosen = [np.sort(rng.choice(length, slots, replace=False)) for _ in range(rows)]
  return dict(
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
    next_BG=rng.integers(0, 2, (rows, 1), dtype=np.int32),
  )


def make_step(config: Any, batch: Batch) -> Callable[[], None]:
  """Our compiled train step as a call that runs it once on its own state and waits for it."""
  objective = names.load('bertjax.objectives', config.objective.name, 'objective.name').make(config)
  mesh, rules = sharding.make_mesh(config.mesh), sharding.as_rules(config.sharding_rules)
  boxed = jax.eval_shape(objective.init, jax.random.key(0), batch)
  shapes = nn.meta.unbox(boxed)
  axes = sharding.logical_axes(boxed)
  tx, schedule = optim.make(config.optimizer, shapes['params'], axes['params'])
  with mesh, nn.logical_axis_rules(rules):
    specs = sharding.named(mesh, sharding.param_specs(shapes, axes, rules, mesh))
    init = jax.jit(lambda key: nn.meta.unbox(objective.init(key, batch)), out_shardings=specs)
    variables = init(jax.random.key(config.seed))
    opt_state = jax.jit(tx.init)(variables['params'])
    device_batch = sharding.put_batch(batch, mesh)
    phase = 'bench'
    state = step.State(
      jax.numpy.int32(0), variables, opt_state, {phase: objective.carry(device_batch)}
    )
    function = step.make_train_step(
      objective, tx, schedule, phase, config.microbatches, config.seed
    )
    compiled = jax.jit(function, donate_argnums=0).lower(state, device_batch).compile()

  def call() -> None:
    nonlocal state
    state, metrics = compiled(state, device_batch)
    jax.block_until_ready((state, metrics))

  return call


def main(argv: list[str]) -> None:
  """Times the step and prints one JSON line."""
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments: {" ".join(argv[1:])}')
  config = _CONFIG.value.copy_and_resolve_references()
  config.batch_size, config.length = _BATCH_SIZE.value, _LENGTH.value
  room = config.model.positions - config.model.position_offset
  if config.length > room:
    raise ValueError(f'--length must be at most {room}, the position table; got {config.length}')
  if not config.model.vocab_size:
    family = 'roberta' if config.model.position_offset else 'bert'
    config.model.vocab_size = VOCAB_SIZES[family]
  batch = synthetic_batch(config)
  arms = dict(ours=make_step(config, batch))
  if _AGAINST.value:
    from bertjax.bench import rival_step  # torch, which training does not need

    arms[_AGAINST.value] = rival_step.make_step(config, batch)
  seconds = timing.alternate(arms, _CALLS.value, _WARMUP.value)
  tokens = config.batch_size * config.length
  result: dict[str, Any] = dict(
    bench='step', config=config.name, batch_size=config.batch_size, length=config.length,
    dtype=config.model.dtype, calls=_CALLS.value,
    **{name: timing.summary(s, tokens, 'tokens') for name, s in seconds.items()},
  )  # fmt: skip
  if _AGAINST.value:
    ratio = np.median(seconds[_AGAINST.value]) / np.median(seconds['ours'])
    result['ratio'] = round(float(ratio), 4)
    result['note'] = 'transformers computes the logits of all positions, as it ships'
  result |= timing.environment() | dict(device=jax.devices()[0].device_kind)
  json.dump(result, sys.stdout)
  sys.stdout.write('\n')
