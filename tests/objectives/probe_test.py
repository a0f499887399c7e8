"""A tagger on frozen layers: what it reads, its LSTMs against PyTorch's, what does not learn."""

import cases
import finetuned
import flax.linen as nn
import jax
import numpy as np
import pytest
from mutation import mutation
from slow_imports import torch
from tiers import in_tiers

from bertjax.errors import UserError
from bertjax.models.layers.tagger import Tagger
from bertjax.objectives import probe
from bertjax.train.step import with_rows
from bertjax.types import Context

L, B, T, D, C = 5, 3, 7, 6, 4
SIZE_B = np.array([7, 4, 1], np.int32)
READ = dict(
  embeddings=lambda x, e: e,
  last=lambda x, e: x[4],
  second_to_last=lambda x, e: x[3],
  sum=lambda x, e: x[0] + x[1] + x[2] + x[3] + x[4],
  sum_last_four=lambda x, e: x[1] + x[2] + x[3] + x[4],
  concat_last_four=lambda x, e: np.concatenate([x[1], x[2], x[3], x[4]], -1),
  mix=lambda x, e: 1.5 * sum(p * y for p, y in zip(MIX, [e, *x], strict=True)),
)
WEIGHTS = np.array([0.3, -1.0, 0.0, 2.0, 0.5, 1.0], np.float32)
MIX = np.exp(WEIGHTS) / np.exp(WEIGHTS).sum()


def states(seed=0):
  rng = np.random.default_rng(seed)
  hidden_LBTD = rng.normal(size=(L, B, T, D)).astype(np.float32)
  return hidden_LBTD, rng.normal(size=(B, T, D)).astype(np.float32)


def tagger(**fields):
  given = dict(features='last', kind='linear', width=3, layers=2, dropout=0.0, classes=C)
  return Tagger(**(given | fields), initializer=jax.nn.initializers.normal(0.3))


@pytest.mark.parametrize('features', in_tiers(READ, {*READ} - {'mix', 'sum_last_four'}))
@mutation('jnp.sum(hidden_LBTD[-4:], 0)', 'jnp.sum(hidden_LBTD[-5:-1], 0)', case='sum_last_four')
@mutation('([embedded_BTD[None], hidden_LBTD])', '([hidden_LBTD[:1], hidden_LBTD])', case='mix')
def test_features_are_read_from_their_layers(features):
  hidden_LBTD, embedded_BTD = states()
  module = tagger(features=features)
  inputs = hidden_LBTD, embedded_BTD, SIZE_B, None
  params = nn.meta.unbox(jax.jit(module.init)(jax.random.key(0), *inputs))['params']
  params = jax.tree.map(np.asarray, params)
  if features == 'mix':
    params = dict(params, mix=WEIGHTS, factor=np.float32(1.5))
  found = module.apply(dict(params=params), *inputs)
  head = params['head']
  expected = READ[features](hidden_LBTD, embedded_BTD) @ head['kernel'] + head['bias']
  np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@mutation('both(x_BTD, seq_lengths=size_B)', 'both(x_BTD)')
def test_lstms_are_those_of_pytorch():
  hidden_LBTD, embedded_BTD = states(1)
  module, rng = tagger(kind='bilstm'), np.random.default_rng(2)
  inputs = hidden_LBTD, embedded_BTD, SIZE_B, None
  shapes = jax.eval_shape(module.init, jax.random.key(0), *inputs)
  params = jax.tree.map(
    lambda x: rng.normal(size=x.shape, scale=0.5).astype(np.float32),
    nn.meta.unbox(shapes['params']),
  )
  theirs = torch.nn.LSTM(D, 3, num_layers=2, bidirectional=True, batch_first=True)
  with torch.no_grad():
    for number in range(2):
      for way, suffix in (('forward', ''), ('backward', '_reverse')):
        cell = params[f'lstm_{number}_{way}']
        set_ = lambda name, x, n=number, s=suffix: getattr(theirs, f'{name}_l{n}{s}').copy_(
          torch.tensor(x)
        )
        set_('weight_ih', np.concatenate([cell[f'i{gate}']['kernel'].T for gate in 'ifgo']))
        set_('weight_hh', np.concatenate([cell[f'h{gate}']['kernel'].T for gate in 'ifgo']))
        set_('bias_ih', np.concatenate([cell[f'h{gate}']['bias'] for gate in 'ifgo']))
        set_('bias_hh', np.zeros(12, np.float32))
    packed = torch.nn.utils.rnn.pack_padded_sequence(
      torch.tensor(hidden_LBTD[-1]), torch.tensor(SIZE_B), batch_first=True
    )
    out, _ = torch.nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
  expected = out.numpy() @ params['head']['kernel'] + params['head']['bias']
  found = np.asarray(jax.jit(module.apply)(dict(params=params), *inputs))
  real_BT = np.arange(T) < SIZE_B[:, None]
  np.testing.assert_allclose(found[real_BT], expected[real_BT], rtol=2e-5, atol=2e-5)


def config(**objective):
  c = finetuned.config('bert', labels=(), token_labels=(('tag', C),))
  c.model.dropout = c.model.attention_dropout = 0.3
  given = dict(features='last', kind='linear', width=3, layers=1, dropout=0.0)
  c.objective = dict(name='probe', **given) | objective
  return c


def batch():
  found = cases.batch([(17,), (40,), (9,)], 40, types=3)
  begins_BT = found['example_BT'] > 0
  rng = np.random.default_rng(1)
  found['tag_BT'] = rng.integers(0, C, (3, 40)).astype(np.int32) * begins_BT
  found['tag_weight_BT'] = begins_BT.astype(np.float32)
  return with_rows(found)


@pytest.mark.full
@mutation('jax.lax.stop_gradient(dict(params=frozen)), batch', 'dict(params=frozen), batch')
def test_the_tagger_alone_learns_and_the_encoder_has_no_dropout():
  objective = probe.make(config())
  variables = nn.meta.unbox(jax.jit(objective.init)(jax.random.key(0), batch()))

  def total(params, step, train):
    ctx = Context(jax.random.key(step), np.int32(0), train=train)
    return objective.loss(dict(params=params), (), batch(), ctx).terms['tag'].total

  value = lambda step, train: float(total(variables['params'], step, train))
  assert value(0, False) == value(0, True) == value(1, True)
  gradients = jax.grad(total)(variables['params'], 0, True)
  learned = {name: any(np.any(x) for x in jax.tree.leaves(g)) for name, g in gradients.items()}
  assert learned == dict(embeddings=False, encoder=False, tagger=True)
  finetuned.check_dropout(probe.make(config(dropout=0.5)), batch(), 'tag')


def test_an_encoder_with_too_few_layers_is_refused():
  c = config(features='concat_last_four')
  c.model.layers = 2
  with pytest.raises(UserError, match="'concat_last_four' reads 4 layers: .* got 2"):
    probe.make(c)
  c.model.token_labels = ()
  with pytest.raises(UserError, match="the objective 'probe' learns other labels"):
    probe.make(c)
