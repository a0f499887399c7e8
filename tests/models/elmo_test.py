"""ELMo's features: the weighted layers beside bilm-tf's formula, which stay as they are."""

import functools

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from mutation import mutation

from bertjax.errors import UserError
from bertjax.kernels.dropout import noise_from_key
from bertjax.models import elmo
from bertjax.models.layers import mix
from configs.finetune import elmo as recipe

ROWS, COLUMNS, WIDTH = 3, 7, 8


@functools.cache
def made(**fields):
  """(model, its parameters, a batch with padding)."""
  c = recipe.get_config('ner').model
  c.update(layers=2, width=WIDTH, cell=16, characters=9, filters=((1, 4), (2, 4)), vocab_size=4)
  c.update(head_dropout=0.0, labels=(('label', 3),), token_labels=(('tag', 5),), **fields)
  rng, model = np.random.default_rng(0), elmo.make(c)
  batch = dict(
    token_BT=np.zeros((ROWS, COLUMNS), np.int32),
    character_BTW=rng.integers(0, 261, (ROWS, COLUMNS, 9)),
    example_BT=np.arange(COLUMNS)[None] < np.array([[7], [2], [5]]),
    example_weight_BG=np.ones((ROWS, 1), np.float32), first_BG=np.zeros((ROWS, 1), np.int32),
    row_B=np.arange(ROWS),
  )  # fmt: skip
  params = cases.variables(model.init, batch)['params']
  params |= dict(mix=jnp.array([0.3, -1.0, 0.5]), factor=jnp.float32(1.7))
  return model, params, batch


def weighted(layers_LBTD, real_BT, weight_L, factor, norm):
  """bilm/elmo.py:weight_layers, with 1 / n before the softmax as there."""
  share_L = np.exp(weight_L + 1 / len(weight_L))
  share_L /= share_L.sum()
  if norm:
    words_LN = [layer[real_BT].ravel() for layer in layers_LBTD]
    pairs = zip(layers_LBTD, words_LN, strict=True)
    layers_LBTD = np.stack([(x - w.mean()) / np.sqrt(w.var() + 1e-12) for x, w in pairs])
  return factor * np.tensordot(share_L, layers_LBTD, 1)


@pytest.mark.parametrize('norm', [False, True])
@mutation('jax.nn.softmax(weight_L)', 'weight_L')
@mutation('x_LBTD * real_1BT1, (1, 2, 3)', 'x_LBTD * real_BT1, (2, 3)', case='True')
def test_labels_are_maps_of_the_weighted_layers(norm):
  model, params, batch = made(mix_norm=norm)
  out = jax.jit(functools.partial(model.apply, hidden=True))(dict(params=params), batch)
  layers_LBTD = np.stack([out['embedded_BTD'], *out['hidden_LBTD']]).astype(np.float64)
  real_BT = batch['example_BT']
  x_BTD = weighted(layers_LBTD, real_BT, np.float64(params['mix']), 1.7, norm)
  own = jax.tree.map(np.float64, params)
  logits = lambda x, name: x @ own[name]['kernel'] + own[name]['bias']
  np.testing.assert_allclose(
    out['token_label_BTC']['tag'][real_BT], logits(x_BTD, 'tag')[real_BT], atol=2e-6
  )
  mean_BD = np.stack([x[real].mean(0) for x, real in zip(x_BTD, real_BT, strict=True)])
  wanted_BGC = logits(mean_BD, 'label')[:, None]
  np.testing.assert_allclose(out['label_BGC']['label'], wanted_BGC, atol=2e-6)
  assert model.batch_statistics == norm


@mutation('mesh.over_rows(total(x_LBTD))', 'total(x_LBTD)', file='bertjax/models/layers/mix.py')
@mutation('mesh.over_rows(jnp.sum(real_BT))', 'jnp.sum(real_BT)')
def test_layers_are_normalised_over_the_rows_of_all_devices():
  layers_LBTD = np.random.default_rng(0).normal(size=(2, 4, 5, 3)).astype(np.float32)
  layers_LBTD[:, 2:] += 3
  real_BT = np.arange(5)[None] < np.array([[5], [2], [4], [1]])
  mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ('data',))
  rows = P(None, 'data')
  shared = jax.shard_map(mix.normalized, mesh=mesh, in_specs=(rows, P('data')), out_specs=rows)
  wanted = mix.normalized(layers_LBTD, real_BT)
  np.testing.assert_allclose(jax.jit(shared)(layers_LBTD, real_BT), wanted, atol=1e-5)


@mutation('2 * self._direction + self._spelling) / 3', '2 * self._direction + self._spelling)')
def test_flops_are_those_of_a_pass_forward_and_of_the_heads_both_ways():
  model, params, batch = made(mix_norm=False)
  real, spelled = batch['example_BT'].sum(), params['spelled']
  cells = [params[f'{way}_{n}'] for way in ('forwards', 'backwards') for n in (0, 1)]
  layers = sum(cell[name].size for cell in cells for name in ('input', 'state', 'projection'))
  filters = sum(spelled[f'filter_{n}'].size * (9 - n) for n in (0, 1))  # at all their places
  layers += filters + sum(x['kernel'].size for x in spelled.values() if isinstance(x, dict))
  heads = real * params['tag']['kernel'].size + ROWS * params['label']['kernel'].size
  assert model.flops(batch) == pytest.approx(2 * real * layers + 6 * heads)


@mutation('layers_LBTD = jax.lax.stop_gradient(layers_LBTD)', 'pass')
def test_the_layers_get_no_gradient():
  model, params, batch = made()
  noise = noise_from_key(jax.random.key(0), batch['row_B'])

  def loss(params):
    return jnp.sum(model.apply(dict(params=params), batch, noise)['label_BGC']['label'] ** 2)

  gradients = jax.jit(jax.grad(loss))(params)
  for name, tree in gradients.items():
    moved = any(np.any(leaf) for leaf in jax.tree.leaves(tree))
    assert moved == (name in ('mix', 'factor', 'label')), name


def test_labels_beside_a_softmax_are_refused():
  with pytest.raises(UserError, match='expected words=False, or labels='):
    made(words=True)
