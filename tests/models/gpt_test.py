"""GPT-1 and GPT-2 beside what OpenAI's programs computed from the same weights."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import cases
import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import parity
import pytest
import written_texts
from ml_collections import ConfigDict
from mutation import mutation
from tiers import in_tiers

from bertjax import models, sharding
from bertjax.kernels.cross_entropy import logits
from bertjax.kernels.dropout import Noise
from bertjax.models import gpt
from bertjax.models.layers.basic import padded_rows
from bertjax.objectives import choose
from bertjax.optim import optimizer
from bertjax.types import Context, Objective
from configs.finetune import glue

NO_DROPOUT = dict(embedding_dropout=0.0, dropout=0.0, attention_dropout=0.0)
FIELDS = dict(
  norm_eps=1e-5, activation='gelu_tanh', init_std=0.02, position_std=0.01, residual_scaled=False,
  remat='none', dtype='float32',
)  # fmt: skip


def model_of(sizes, one_table, vocab_size):
  """The model of an original's sizes."""
  return gpt.GPT(
    vocab_size=vocab_size, layers=sizes['n_layer'], width=sizes['n_embd'], heads=sizes['n_head'],
    ffn=4 * sizes['n_embd'], positions=sizes['n_ctx'], one_table=one_table,
    norms='after' if one_table else 'before', **FIELDS, **NO_DROPOUT,
  )  # fmt: skip


def parameters_of(theirs, prefix, model):
  """The parameters of an original, or their gradients, as ours."""

  def stack(name):
    return np.stack([theirs[f'{prefix}h{i}/{name}'] for i in range(model.layers)])

  def dense(name):
    return dict(kernel=stack(f'{name}/w')[:, 0], bias=stack(f'{name}/b'))

  def padded(table):
    return np.pad(table, ((0, padded_rows(len(table)) - len(table)), (0, 0)))

  norm = lambda name: dict(scale=stack(f'{name}/g'), bias=stack(f'{name}/b'))
  fused, heads = dense('attn/c_attn'), (model.heads, model.width // model.heads)
  split = lambda leaf: np.split(leaf, 3, -1)
  attention = {
    name: dict(kernel=kernel.reshape(*kernel.shape[:-1], *heads), bias=bias.reshape(-1, *heads))
    for name, kernel, bias in zip(
      ('query', 'key', 'value'), split(fused['kernel']), split(fused['bias']), strict=True
    )
  }
  out = dense('attn/c_proj')
  attention['out'] = dict(
    kernel=out['kernel'].reshape(model.layers, *heads, model.width), bias=out['bias']
  )
  found = dict(
    layers=dict(
      attention=attention, attention_norm=norm('ln_1'), ffn_norm=norm('ln_2'),
      ffn_up=dense('mlp/c_fc'), ffn_down=dense('mlp/c_proj'),
    )
  )  # fmt: skip
  if model.one_table:
    return found | dict(word=padded(theirs[f'{prefix}we']))
  last = dict(scale=theirs[f'{prefix}ln_f/g'], bias=theirs[f'{prefix}ln_f/b'])
  tables = dict(word=padded(theirs[f'{prefix}wte']), position=theirs[f'{prefix}wpe'])
  return found | tables | dict(final_norm=last)


def rows_of(token_BT):
  """Token ids as a batch, each row one example."""
  position_BT = np.broadcast_to(np.arange(token_BT.shape[1]), token_BT.shape)
  return dict(
    token_BT=jnp.asarray(token_BT), position_BT=jnp.asarray(position_BT),
    example_BT=jnp.ones_like(jnp.asarray(token_BT)),
  )  # fmt: skip


@mutation("if self.norms == 'before':", "if self.norms == 'never':")
def test_gpt2_is_the_original(golden):
  theirs, config = golden('gpt2_original')
  sizes = config['hparams']
  model = model_of(sizes, False, sizes['n_vocab'])
  params, batch = parameters_of(theirs, 'param/', model), rows_of(theirs['token'])
  weight_BT = np.ones(theirs['token'].shape, np.float32)
  weight_BT[:, -1] = 0
  next_BT = np.roll(theirs['token'], -1, 1)
  (loss, out), gradient = parity.word_gradients(model, params, batch, next_BT, weight_BT)
  np.testing.assert_allclose(
    logits(out['word'])[..., : sizes['n_vocab']], theirs['logits'], atol=5e-6
  )
  np.testing.assert_allclose(loss, theirs['loss'], rtol=1e-6)
  chex.assert_trees_all_close(
    jax.tree.map(np.asarray, gradient), parameters_of(theirs, 'grad/', model), atol=2e-6
  )


def choices_of(x, mask):
  """Choices of the original, [B, G, T, (token, row of the position)], as parts of rows."""
  rows, parts, length, _ = x.shape
  flat = lambda x_BGT: jnp.asarray(x_BGT.reshape(rows, -1), jnp.int32)
  number_BGT = (mask > 0) * np.arange(1, parts + 1)[:, None]
  first_BG = np.arange(parts) * length + mask.sum(-1).astype(np.int32) - 1
  return dict(
    token_BT=flat(x[..., 0]), position_BT=flat(np.broadcast_to(np.arange(length), mask.shape)),
    example_BT=flat(number_BGT), first_BG=jnp.asarray(first_BG, jnp.int32),
    example_weight_BG=jnp.ones((rows, parts)), row_B=jnp.arange(rows, dtype=jnp.uint32),
  )  # fmt: skip


class Tuning(NamedTuple):
  """Fine-tuning on choices, as the golden file of the original has it."""

  theirs: Mapping[str, np.ndarray]
  objective: Objective
  batch: dict[str, Any]
  params_of: Callable[[str], Any]  # by the prefix of their names
  loss: Callable[[Any], Any]  # of parameters, without dropout


def tuning(golden, factor):
  theirs, sizes = golden('gpt1_original')
  base = model_of(sizes, True, sizes['n_vocab'] + sizes['n_special'])
  fields = {key: getattr(base, key) for key in gpt.MODEL.options.__annotations__}
  given = ConfigDict(fields | dict(name='gpt', labels=(('right', 1),)))
  objective = choose.make(ConfigDict(dict(model=given, objective=dict(name='choose', lm=factor))))
  batch = choices_of(theirs['gpt1/x'], theirs['gpt1/m'])
  batch['right_BG'] = jax.nn.one_hot(theirs['gpt1/y'], 2)

  def params_of(prefix):
    head = dict(kernel=theirs[f'{prefix}clf/w'], bias=theirs[f'{prefix}clf/b'])
    return parameters_of(theirs, prefix, base) | dict(right=head)

  def loss(params):
    ctx = Context(jax.random.key(0), jnp.int32(0), train=False)
    terms = objective.loss(dict(params=params), (), batch, ctx).terms.values()
    return sum(term.scale * term.total / term.weight for term in terms)

  return Tuning(theirs, objective, batch, params_of, loss)


@mutation('jnp.maximum(jnp.sum(of_BGT, -1), 1)', '8.0', case='0.5')
@mutation('pool(x_BTD, batch, self.pooling)', 'x_BTD[:, :2]', file='bertjax/models/gpt.py')
@mutation('self._own_rows\n    head', '0\n    head', case='0.5')
@pytest.mark.parametrize('factor', in_tiers([0.0, 0.5], [0.0]))
def test_fine_tuning_on_choices_is_the_original(golden, factor):
  """GPT-1: the loss of the choice, and with a factor that of all words; then the gradient too."""
  theirs, objective, batch, params_of, loss = tuning(golden, factor)
  params = params_of('gpt1/param/')
  found, gradient = jax.jit(jax.value_and_grad(loss))(params)
  np.testing.assert_allclose(found, theirs[f'gpt1/loss_{factor}'], rtol=2e-6)
  scores = objective.predict(dict(params=params), (), batch)['label_BGC']['right'][..., 0]
  np.testing.assert_allclose(scores, theirs['gpt1/clf_logits'], atol=5e-6)
  if factor:  # TensorFlow gives the table's gradient of look-ups alone in pieces
    chex.assert_trees_all_close(
      jax.tree.map(np.asarray, gradient), params_of(f'gpt1/grad_{factor}/'), atol=2e-6
    )


@mutation('lambda u: scale * u, updates', 'lambda u: u, updates')
@mutation("name='openai_adam'", "name='adamw'")
def test_five_steps_of_fine_tuning_are_the_originals(golden):
  """Without what has no gradient but rounding, which Adam makes as large as any: the biases of keys
  and of the choice. Here the program had counted a step when it asked for its rate."""
  theirs, objective, batch, params_of, loss = tuning(golden, 0.5)
  c = glue.get_config('sst2,gpt').optimizer
  c.schedule.update(peak=0.0625, warmup_steps=2, total_steps=8)
  shapes = jax.eval_shape(objective.init, jax.random.key(0), batch)
  params = jax.tree.map(jnp.asarray, params_of('gpt1/param/'))
  tx, schedule = optimizer.make(c, params, sharding.logical_axes(shapes)['params'])

  @jax.jit
  def step(params, state, rate):
    found, gradient = jax.value_and_grad(loss)(params)
    updates, state = tx.update(gradient, state, params, rate=rate)
    return found, optax.apply_updates(params, updates), state

  state, losses = tx.init(params), []
  for number in range(5):
    found, params, state = step(params, state, schedule(number + 1))
    losses.append(found)
  np.testing.assert_allclose(losses, theirs['gpt1/adam/losses'], rtol=2e-5)
  after = params_of('gpt1/adam/param_after/')
  for tree in (params, after):
    del tree['right']['bias'], tree['layers']['attention']['key']['bias']
  chex.assert_trees_all_close(params, after, atol=1e-4)


@pytest.mark.full
@mutation('jnp.sum(read_BGD, 1, keepdims=True)', 'read_BGD[:, :1]')
def test_both_orders_of_a_pair_are_summed():
  fields = {f: getattr(model_of(dict(n_layer=2, n_embd=16, n_head=2, n_ctx=8), False, 20), f)
            for f in gpt.MODEL.options.__annotations__}  # fmt: skip
  model = gpt.Labelled(**fields | dict(labels=(('label', 3),), both_orders=True))
  x = np.random.default_rng(0).integers(0, 20, (3, 2, 8))
  place = np.broadcast_to(np.arange(8), x.shape)
  both = choices_of(np.stack([x, place], -1), np.ones(x.shape))
  variables = model.init(jax.random.key(0), both)
  found = model.apply(variables, both)['label_BGC']['label']
  one = [rows_of(x[:, i]) | dict(first_BG=jnp.full((3, 1), 7)) for i in range(2)]
  each = [model.apply(variables, batch)['label_BGC']['label'] for batch in one]
  np.testing.assert_allclose(found, np.repeat(sum(each), 2, 1), atol=1e-6)


def test_a_table_with_positions_is_dropped_once_for_all_rows():
  sizes = dict(n_layer=2, n_embd=16, n_head=2, n_ctx=8)
  model = model_of(sizes, True, 20).clone(embedding_dropout=0.5)
  row = np.random.default_rng(0).integers(0, 20, (1, 8))
  batch = rows_of(np.repeat(row, 3, 0))
  variables = cases.variables(model.init, batch)
  rows = jnp.arange(3, dtype=jnp.uint32)
  run = jax.jit(lambda seed: model.apply(variables, batch, (), Noise(seed, rows)))
  out, other = run(jnp.uint32(3)), run(jnp.uint32(4))
  last_BTD = np.asarray(out['last_BTD'])
  np.testing.assert_array_equal(last_BTD[0], last_BTD[2])
  assert np.any(last_BTD[0] != other['last_BTD'][0])
  zero = np.mean(np.asarray(out['word'].table_VE)[:28] == 0)
  assert 0.4 < zero < 0.6  # the softmax reads the dropped table


@mutation('jnp.cumsum(real_BT, 1) - 1', 'jnp.cumsum(jnp.ones_like(real_BT), 1) - 1')
@mutation('(real_BS[:, None] & (column_TS <= 0)[None])', '(column_TS <= 0)[None]')
@mutation('key: x_BT[:, -1:] for key', 'key: 0 * x_BT[:, -1:] for key', case='xlm')
@mutation("batch['position_BT'][:, -1] + 1", "batch['position_BT'][:, -1]")
@mutation('reading.seen_BTS[:, -1:]', 'reading.seen_BTS[:, :1]')
@mutation('normed(x_BTD), normed(new_BTD)', 'normed(x_BTD), normed(x_BTD)')
@mutation(
  'zip(*map(jnp.unstack, leaves), strict=True)',
  '[next(zip(*map(jnp.unstack, leaves)))] * len(leaves[0])',
)
@pytest.mark.parametrize('kind', in_tiers(['gpt1', 'gpt2', 'xlm'], ['gpt1']))
def test_a_text_token_by_token_is_the_whole_text(kind):
  """Of every model that is an `OneText`; GPT-2's in bfloat16."""
  sizes, dtype = dict(n_layer=2, n_embd=16, n_head=2, n_ctx=12), 'float32'
  if kind == 'xlm':
    table = dict(extra=(('language', 3),), zero_row=None, attend='causal', positions=12)
    shape = dict(vocab_size=20, layers=2, width=16, heads=2, ffn=32, init_std=0.3)
    model = models.build(cases.config('xlm', **shape, **table).model)
  else:
    dtype = 'float32' if kind == 'gpt1' else 'bfloat16'
    model = model_of(sizes, kind == 'gpt1', 20).clone(dtype=dtype, init_std=0.3)
  token_BT = np.random.default_rng(0).integers(1, 20, (3, 10))
  given = rows_of(token_BT)
  given |= dict(language_BT=jnp.full_like(given['token_BT'], 2), target_pos_BP=given['position_BT'])
  variables = cases.variables(model.init, given, std=0.3)
  whole_BTV = logits(jax.jit(model.apply)(variables, given)['word'])[..., :20]
  close = dict(atol=1e-5, rtol=1e-5) if dtype == 'float32' else dict(atol=0.08, rtol=0.05)
  written_texts.check_token_by_token(
    model, model.for_writing(variables), token_BT, whole_BTV, [6, 3, 1], close,
    language_BT=jnp.full((3, 6), 2),
  )  # fmt: skip
