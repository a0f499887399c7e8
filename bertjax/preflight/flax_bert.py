"""FlaxBert's train step, compiled for a TPU: python -m bertjax.preflight.flax_bert [flags]

transformers had models in Flax until 4.57, which does not go with the version that the tests have:
an environment of its own has jax, flax, optax, libtpu, ml_collections and transformers==4.57.6. The
step is BERT base's in bfloat16 with dropout on, words scored at all positions and weighed by what
is masked, gradients clipped to norm 1, AdamW. Prints one JSON line.
"""

import json
import sys
from typing import Any

import jax
import jax.numpy as jnp
import optax
from absl import flags

from bertjax.config import command_line
from bertjax.errors import UserError, door
from bertjax.preflight import topology, traffic

_ROWS = flags.DEFINE_integer('rows', 32, 'Rows of a step.', lower_bound=1)
_LENGTH = flags.DEFINE_integer('length', 512, 'Tokens of a row.', lower_bound=1, upper_bound=512)
_TOPOLOGY = flags.DEFINE_string('topology', 'v5e:1x1', 'A slice; its first chip is compiled for.')


def step_of(model: Any, optimizer: optax.GradientTransformation):
  """The train step: parameters, optimizer's state, batch and key -> the first two and the loss."""

  def loss_of(params, batch, key):
    batch = dict(batch)
    target_BT, weight_BT = batch.pop('target_BT'), batch.pop('weight_BT')
    rngs = dict(dropout=key)
    logits_BTV = model.apply(
      dict(params=params), **batch, deterministic=False, rngs=rngs, return_dict=True
    ).logits
    nll_BT = optax.softmax_cross_entropy_with_integer_labels(
      logits_BTV.astype(jnp.float32), target_BT
    )
    return jnp.sum(weight_BT * nll_BT) / jnp.sum(weight_BT)

  def step(params, state, batch, key):
    loss, gradients = jax.value_and_grad(loss_of)(params, batch, key)
    updates, state = optimizer.update(gradients, state, params)
    return optax.apply_updates(params, updates), state, loss

  return jax.jit(step, donate_argnums=(0, 1))


def arguments_of(
  model: Any, optimizer: optax.GradientTransformation, rows: int, length: int
) -> tuple[Any, ...]:
  """The shapes of the step's arguments."""
  ids = jax.ShapeDtypeStruct((rows, length), jnp.int32)
  named = ('input_ids', 'attention_mask', 'token_type_ids', 'position_ids')
  read: dict[str, Any] = dict.fromkeys(named, ids)
  read['head_mask'] = jax.ShapeDtypeStruct((12, 12), jnp.float32)
  key = jax.ShapeDtypeStruct((2,), jnp.uint32)
  params = jax.eval_shape(lambda key, read: model.init(key, **read)['params'], key, read)
  weights = jax.ShapeDtypeStruct((rows, length), jnp.float32)
  batch = dict(read, target_BT=ids, weight_BT=weights)
  return params, jax.eval_shape(optimizer.init, params), batch, key


def main() -> None:
  """Compiles the step and prints what it moves.

  Raises:
    UserError: this version of transformers has no models in Flax, or as `topology.devices`.
  """
  try:
    from transformers import BertConfig, __version__
    from transformers.models.bert.modeling_flax_bert import (  # pyright: ignore[reportMissingImports]
      FlaxBertForMaskedLMModule,
    )
  except ImportError as error:
    raise UserError(
      f"{error}: expected transformers with Flax's models, as pip install transformers==4.57.6 has"
    ) from error
  model = FlaxBertForMaskedLMModule(BertConfig(), dtype=jnp.bfloat16)
  optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-4, weight_decay=0.01))
  rows, length = _ROWS.value, _LENGTH.value
  arguments = arguments_of(model, optimizer, rows, length)
  chip = topology.devices(_TOPOLOGY.value)[0]
  with topology.in_turn(lambda line: print(line, file=sys.stderr, flush=True)):
    lowered = step_of(model, optimizer).lower(*topology.on(chip, arguments))
    compiled, text, _ = topology.compile_to_text(lowered)
  moved, tokens = traffic.account(text), rows * length
  json.dump(
    dict(
      transformers=__version__, rows=rows, length=length, topology=_TOPOLOGY.value,
      bytes_per_token=round(moved.bytes / tokens),
      bytes_per_token_padded=round(moved.padded_bytes / tokens),
      temporaries_bytes=topology.memory(compiled)['temp_bytes'],
    ),
    sys.stdout,
  )  # fmt: skip
  sys.stdout.write('\n')


if __name__ == '__main__':
  with door('bertjax.preflight.flax_bert'):
    command_line.run(main, 'bertjax.preflight.flax_bert')
