"""Properties of the BERT, RoBERTa and ALBERT models."""

import cases
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta
from mutation import mutation

from bertjax.config import keys
from bertjax.kernels.dropout import Noise
from bertjax.kernels.relative_attention import Mask
from bertjax.models.layers import block
from bertjax.models.layers.encoder import Encoder
from bertjax.objectives import mlm
from bertjax.sharding import leaf_path, logical_axes
from bertjax.train.step import accumulate, with_rows
from bertjax.types import Context


def boxed_shapes(c):
  batch = cases.batch([[8]], 8)
  return jax.eval_shape(mlm.make(c).init, jax.random.key(0), batch)['params']


@pytest.mark.parametrize('family', ['bert', 'roberta', 'albert'])
def test_every_parameter_has_logical_axes_with_a_rule(family):
  boxed = boxed_shapes(cases.config(family))
  rules = dict(keys.SHARDING_RULES)
  is_box = lambda x: isinstance(x, nn.LogicallyPartitioned)
  for path, box in jax.tree_util.tree_leaves_with_path(boxed, is_leaf=is_box):
    assert is_box(box), f'{leaf_path(path)} has no axes'
    assert len(box.names) == len(box.value.shape), leaf_path(path)
    assert set(box.names) <= set(rules), leaf_path(path)
    assert (box.names[0] == 'layers') == ('layers' in leaf_path(path)), leaf_path(path)
  names = [n for n in jax.tree.leaves(logical_axes(boxed)) if n is not None]
  assert {'vocab', 'heads', 'ffn', 'embed'} <= set(names)


def test_initial_values_are_those_of_the_originals():
  batch = cases.batch([[8]], 8)
  init = lambda c: meta.unbox(jax.jit(mlm.make(c).init)(jax.random.key(0), batch))['params']
  theirs = init(cases.config('bert'))['encoder']['layers']['ffn_up']['kernel']
  assert abs(theirs.std() - 0.0176) < 0.0003 and abs(theirs).max() <= 0.04  # cut, not rescaled
  params = init(cases.config('roberta'))
  kernel = params['encoder']['layers']['ffn_up']['kernel']
  assert abs(kernel.std() - 0.02) < 0.0003 and abs(kernel).max() > 0.06
  assert not params['embeddings']['word'][1].any()  # <pad>
  assert params['embeddings']['word'][0].any()
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    if leaf_path(path).endswith('bias'):
      assert not leaf.any(), leaf_path(path)
    if leaf_path(path).endswith('scale'):
      assert (leaf == 1).all(), leaf_path(path)


def make_encoder(layers: int = 2, **fields):
  layer = dict(
    heads=4, ffn=64, activation='gelu_erf', norm_eps=1e-12, dropout=0.1, attention_dropout=0.1,
    initializer=jax.nn.initializers.normal(0.1), hidden=True,
  )  # fmt: skip
  return Encoder(layers, 'none', layer | fields)


@pytest.mark.parametrize('causal', [False, True], ids=['both ways', 'causal'])
def test_each_token_depends_on_all_of_its_example_and_nothing_else(causal):
  example = np.array([1, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0])
  rng = np.random.default_rng(0)
  x_BTD = rng.normal(size=(1, len(example), 32)).astype(np.float32)
  encoder = make_encoder(layers=1)
  column = np.arange(len(example))[None]
  mask = Mask(example[None], example[None], causal=causal)
  context = block.Context(mask)
  variables = encoder.init(jax.random.key(0), x_BTD, context, None)
  direction = rng.normal(size=32).astype(np.float32)  # a plain sum is constant after a norm

  def out(x_BTD):
    return encoder.apply(variables, x_BTD, context, None)[0][0] @ direction

  slope_TSD = jax.jacrev(out)(x_BTD)[:, 0]
  reached = np.abs(slope_TSD).max(-1) > 0
  same = (example[:, None] == example) & (example > 0)
  same &= (column <= column.T) if causal else True
  np.testing.assert_array_equal(reached, same | np.eye(len(example), dtype=bool))


def variables_of(c, std: float = 0.1):
  shapes = jax.eval_shape(mlm.make(c).init, jax.random.key(0), cases.batch([[8]], 8))
  return jax.tree.map(jnp.asarray, cases.random_params(meta.unbox(shapes), std))


def test_self_attention_only_sees_one_token():
  c = cases.config('bert', attend='self')
  predict, variables = jax.jit(mlm.make(c).predict), variables_of(c)
  batch = cases.batch([[20]], 20)
  token_BT = batch['token_BT'].copy()
  token_BT[0, 3] = 8
  before, after = (
    predict(variables, (), batch),
    predict(variables, (), batch | dict(token_BT=token_BT)),
  )
  changed = np.abs(before['last_BTD'] - after['last_BTD'])[0].max(-1) > 0
  np.testing.assert_array_equal(np.nonzero(changed)[0], [3])


@mutation('(example_BT << 8) + batch', '(example_BT << 8) + 0 * batch')
def test_attention_may_keep_to_a_language():
  """Two packed examples of two languages each: a token reaches its own part alone."""
  c = cases.config('bert', attend='language')
  predict, variables = jax.jit(mlm.make(c).predict), variables_of(cases.config('bert'))
  batch = cases.batch([[9, 8]], 20)
  batch['language_BT'] = (np.arange(20) % 9 >= 4).astype(np.int32)[None]
  part_T = 2 * batch['example_BT'][0] + batch['language_BT'][0]
  before = predict(variables, (), batch)['last_BTD']
  for column in (2, 7, 12, 16):
    token_BT = batch['token_BT'].copy()
    token_BT[0, column] += 1
    after = predict(variables, (), batch | dict(token_BT=token_BT))['last_BTD']
    changed = np.abs(after - before)[0].max(-1) > 0
    np.testing.assert_array_equal(changed, part_T == part_T[column])
  del batch['language_BT']
  with pytest.raises(ValueError, match='needs language ids'):
    predict(variables, (), batch)


def loss_of(c, variables, batch, train: bool):
  ctx = Context(jax.random.key(3), jnp.int32(0), train)
  terms = jax.jit(lambda v, b: mlm.make(c).loss(v, (), with_rows(b), ctx).terms)(variables, batch)
  return terms['mlm'].total / terms['mlm'].weight


def gradient_of(c, variables, batch, train: bool = False, microbatches: int = 1):
  ctx = Context(jax.random.key(3), jnp.int32(0), train)
  run = lambda v, b: accumulate(mlm.make(c), v, (), with_rows(b), ctx, microbatches)[:2]
  grads, loss = jax.jit(run)(variables, batch)
  return loss, grads


def test_vocabulary_padding_is_out_of_the_game():
  c = cases.config('bert')
  variables, batch = variables_of(c), cases.batch([[9, 14], [20, 11]], 32)
  logits_BPV = mlm.make(c).predict(variables, (), batch)['logits_BPV']
  assert np.isneginf(logits_BPV[..., cases.VOCAB :]).all()
  assert np.isfinite(logits_BPV[..., : cases.VOCAB]).all()
  loss, grads = gradient_of(c, variables, batch)
  assert np.isfinite(loss) and all(np.isfinite(g).all() for g in jax.tree.leaves(grads))
  for rows in (grads['embeddings']['word'], grads['mlm']['bias']):
    assert not rows[cases.VOCAB :].any() and rows[: cases.VOCAB].any()


def relative_error(ours, theirs) -> float:
  """Returns the worst leaf's largest difference, over that leaf's largest entry. A key's bias moves
  all scores of a query alike: of its gradient only that it is next to 0."""

  def error(path, a, b):
    zero = jax.tree_util.keystr(path).endswith("['key']['bias']")
    return float(np.abs(a - b).max() / (1e-3 if zero else max(np.abs(b).max(), 1e-6)))

  return max(jax.tree.leaves(jax.tree_util.tree_map_with_path(error, ours, theirs)))


@pytest.mark.full
@pytest.mark.parametrize('remat', ['light', 'dots', 'full'])
def test_remat_changes_nothing(remat):
  c, batch = cases.config('bert'), cases.batch([[9, 14], [20, 11]], 32)
  variables = variables_of(c)
  loss, grads = gradient_of(c, variables, batch, train=True)
  c.model.remat = remat
  loss_again, grads_again = gradient_of(c, variables, batch, train=True)
  np.testing.assert_allclose(loss_again, loss, rtol=1e-6)
  assert relative_error(grads_again, grads) < 1e-4


def test_bfloat16_is_near_float32():
  c, batch = cases.config('bert'), cases.batch([[9, 14], [20, 11]], 32)
  variables = variables_of(c, std=0.02)
  loss = loss_of(c, variables, batch, train=False)
  c.model.dtype = 'bfloat16'
  low = loss_of(c, variables, batch, train=False)
  assert abs(low - loss) < 0.01 * loss and low != loss
  _, grads = gradient_of(c, variables, batch)
  for leaf in jax.tree.leaves(grads):
    assert leaf.dtype == jnp.float32 and np.isfinite(leaf).all()


@pytest.mark.parametrize('field', ['dropout', 'attention_dropout'])
def test_each_rate_switches_its_dropout(field):
  """Sites that a rate of 0 leaves alive would still change the loss."""
  batch = cases.batch([[9, 14], [20, 11]], 32)
  c = cases.config('bert', dropout=0.0, attention_dropout=0.0)
  variables = variables_of(c)
  calm = loss_of(c, variables, batch, train=False)
  quiet = loss_of(c, variables, batch, train=True)
  np.testing.assert_allclose(quiet, calm, rtol=1e-6)
  c.model[field] = 0.1
  noisy = loss_of(c, variables, batch, train=True)
  assert abs(noisy - calm) > 1e-4


@pytest.mark.parametrize('rates', [dict(dropout=0.0), dict(attention_dropout=0.0)])
def test_layers_draw_apart(rates):
  x_BTD = np.random.default_rng(0).normal(size=(2, 8, 32)).astype(np.float32)
  example_BT, noise = np.ones((2, 8), np.int32), Noise(jnp.uint32(5), jnp.arange(2, dtype='uint32'))
  context = block.Context(Mask(example_BT, example_BT))
  variables = make_encoder(**rates).init(jax.random.key(0), x_BTD, context, None)
  second = jax.tree.map(lambda p: p[1:], meta.unbox(variables))

  def step(noise):
    """What layer 1 makes of layer 0's output: inside the stack, and at the bottom of another."""
    _, h_LBTD = make_encoder(**rates).apply(variables, x_BTD, context, noise)
    alone, _ = make_encoder(1, **rates).apply(second, h_LBTD[0], context, noise)
    return h_LBTD[1], alone

  np.testing.assert_allclose(*step(None), atol=1e-5)
  stacked, alone = step(noise)
  assert np.abs(stacked - alone).max() > 0.01
