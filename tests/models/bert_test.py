"""Properties of the BERT, RoBERTa and ALBERT models."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta
from mutation import mutation

from bertjax.kernels.relative_attention import Mask
from bertjax.models.layers import block
from bertjax.models.layers.encoder import Encoder
from bertjax.objectives import mlm
from bertjax.sharding import leaf_path
from bertjax.train.step import with_rows
from bertjax.types import Context


@mutation('.at[size:].set(0)', '')
def test_initial_values_are_those_of_the_originals():
  """Rows that pad the vocabulary are 0: LAMB's trust ratio is that of the vocabulary alone."""
  batch = cases.batch([[8]], 8)
  begun = lambda family, key: meta.unbox(mlm.make(cases.config(family)).init(key, batch))['params']
  ffn_up = lambda params: params['encoder']['layers']['ffn_up']['kernel']
  theirs = jax.jit(lambda key: ffn_up(begun('bert', key)))(jax.random.key(0))
  assert abs(theirs.std() - 0.0176) < 0.0003 and abs(theirs).max() <= 0.04  # cut, not rescaled
  params = jax.jit(lambda key: begun('roberta', key))(jax.random.key(0))
  kernel = ffn_up(params)
  assert abs(kernel.std() - 0.02) < 0.0003 and abs(kernel).max() > 0.06
  assert not params['embeddings']['word'][1].any()  # <pad>
  assert params['embeddings']['word'][0].any()
  assert not params['embeddings']['word'][cases.VOCAB :].any()
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    if leaf_path(path).endswith('bias'):
      assert not leaf.any(), leaf_path(path)
    if leaf_path(path).endswith('scale'):
      assert (leaf == 1).all(), leaf_path(path)


def test_each_token_depends_on_all_of_its_example_before_it_and_on_nothing_else():
  example = np.array([1, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0])
  rng = np.random.default_rng(0)
  x_BTD = rng.normal(size=(1, len(example), 32)).astype(np.float32)
  layer = dict(
    heads=4, ffn=64, activation='gelu_erf', norm_eps=1e-12, dropout=0.0, attention_dropout=0.0,
    initializer=jax.nn.initializers.normal(0.1),
  )  # fmt: skip
  encoder = Encoder(1, 'none', layer)
  column = np.arange(len(example))[None]
  mask = Mask(example[None], example[None], causal=True)
  context = block.Context(mask)
  variables = cases.variables(encoder.init, x_BTD, context, None)
  direction = rng.normal(size=32).astype(np.float32)  # a plain sum is constant after a norm

  def out(x_BTD):
    return encoder.apply(variables, x_BTD, context, None)[0][0] @ direction

  slope_TSD = jax.jit(jax.jacrev(out))(x_BTD)[:, 0]
  reached = np.abs(slope_TSD).max(-1) > 0
  same = (example[:, None] == example) & (example > 0) & (column <= column.T)
  np.testing.assert_array_equal(reached, same | np.eye(len(example), dtype=bool))


def variables_of(c, std: float = 0.1):
  return cases.variables(mlm.make(c).init, cases.batch([[8]], 8), std=std)


def reached(predict, variables, batch, column: int):
  """The columns of a batch's row that change with the token of one of them."""
  token_BT = batch['token_BT'].copy()
  token_BT[0, column] += 1
  before, after = (
    predict(variables, (), each)['last_BTD'] for each in (batch, dict(batch, token_BT=token_BT))
  )
  return np.flatnonzero(np.abs(before - after)[0].max(-1))


@mutation('(example_BT << 8) + batch', '(example_BT << 8) + 0 * batch')
def test_attention_may_keep_to_a_token_or_a_language():
  """Two packed examples of two languages each: a token reaches itself, or its own part, alone."""
  variables, batch = variables_of(cases.config('bert')), cases.batch([[9, 8]], 20)
  predict = jax.jit(mlm.make(cases.config('bert', attend='self')).predict)
  assert reached(predict, variables, batch, 3).tolist() == [3]
  predict = jax.jit(mlm.make(cases.config('bert', attend='language')).predict)
  batch['language_BT'] = (np.arange(20) % 9 >= 4).astype(np.int32)[None]
  part_T = 2 * batch['example_BT'][0] + batch['language_BT'][0]
  for column in (2, 7, 12, 16):
    own = np.flatnonzero(part_T == part_T[column])
    np.testing.assert_array_equal(reached(predict, variables, batch, column), own)
  del batch['language_BT']
  with pytest.raises(ValueError, match='needs language ids'):
    predict(variables, (), batch)


def loss_of(c, variables, batch, train: bool = False):
  ctx = Context(jax.random.key(3), jnp.int32(0), train)
  terms = jax.jit(lambda v, b: mlm.make(c).loss(v, (), with_rows(b), ctx).terms)(variables, batch)
  return terms['mlm'].total / terms['mlm'].weight


def test_bfloat16_is_near_float32():
  c, batch = cases.config('bert'), cases.batch([[9, 14], [20, 11]], 32)
  variables = variables_of(c, std=0.02)
  loss = loss_of(c, variables, batch)
  c.model.dtype = 'bfloat16'
  low, grads = jax.value_and_grad(lambda v: loss_of(c, v, batch))(variables)
  assert abs(low - loss) < 0.01 * loss and low != loss
  for leaf in jax.tree.leaves(grads):
    assert leaf.dtype == jnp.float32 and np.isfinite(leaf).all()


def test_each_rate_switches_its_dropout():
  """Sites that a rate of 0 leaves alive would still change the loss."""
  batch = cases.batch([[9, 14], [20, 11]], 32)
  c = cases.config('bert', dropout=0.0, attention_dropout=0.0)
  variables = variables_of(c)
  calm = loss_of(c, variables, batch)
  np.testing.assert_allclose(loss_of(c, variables, batch, train=True), calm, rtol=1e-6)
  for field in ('dropout', 'attention_dropout'):
    rates = dict(dropout=0.0, attention_dropout=0.0) | {field: 0.1}
    noisy = loss_of(cases.config('bert', **rates), variables, batch, train=True)
    assert abs(noisy - calm) > 1e-4, field
