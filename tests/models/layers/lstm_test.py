"""The layers of ELMo and AWD-LSTM beside the originals: states, outputs, losses, gradients."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mutation import mutation
from tiers import in_tiers

from bertjax.kernels import sampled_softmax
from bertjax.kernels.dropout import Noise
from bertjax.models.layers import char_cnn, lstm
from bertjax.models.layers.lstm import LSTM

ZEROS = jax.nn.initializers.zeros


def tf_layer(theirs, prefix, inputs):
  """The parameters of TensorFlow's LSTMCell."""
  split = lambda leaf: leaf.reshape(*leaf.shape[:-1], 4, -1)
  kernel = split(theirs[f'{prefix}kernel'])
  return dict(
    input=kernel[:inputs], state=kernel[inputs:], bias=split(theirs[f'{prefix}bias']),
    projection=theirs[f'{prefix}projection/kernel'],
  )  # fmt: skip


def bilm_of(theirs, prefix, options):
  """The parameters of bilm-tf, or their gradients, as ours."""
  at = lambda name: theirs[prefix + name]
  cell = 'RNN_{}/rnn/multi_rnn_cell/cell_{}/lstm_cell/'
  inputs = options['lstm']['projection_dim']
  layers = [
    [tf_layer(theirs, prefix + cell.format(way, i), inputs) for i in range(2)] for way in range(2)
  ]
  found = dict(layers=layers, softmax=(at('softmax/W'), at('softmax/b')))
  if 'char_cnn' not in options:
    return found | dict(words=at('embedding'))
  words = dict(characters=at('char_embed'))
  for number in range(len(options['char_cnn']['filters'])):
    words[f'filter_{number}'] = at(f'CNN/W_cnn_{number}')[0]
    words[f'filter_{number}_bias'] = at(f'CNN/b_cnn_{number}')
  for number in range(options['char_cnn']['n_highway']):
    for name in ('carry', 'transform'):
      kernel, bias = (at(f'CNN_high_{number}/{leaf}_{name}') for leaf in 'Wb')
      words[f'{name}_{number}'] = dict(kernel=kernel, bias=bias)
  words['projection'] = dict(kernel=at('CNN_proj/W_proj'), bias=at('CNN_proj/b_proj'))
  return found | dict(words=words)


class Original:
  """bilm-tf's graph of one step, made of our layers."""

  def __init__(self, theirs, config):
    self.theirs, self.options = theirs, config['options']
    sizes = self.options['lstm']
    self.skips = sizes['use_skip_connections']
    self.layer = LSTM(
      sizes['dim'], ZEROS, projection=sizes['projection_dim'], cell_clip=sizes['cell_clip'],
      projection_clip=sizes['proj_clip'], forget_bias=1.0,
    )  # fmt: skip
    if 'char_cnn' in self.options:
      chars = self.options['char_cnn']
      self.words = char_cnn.CharCNN(
        sizes['projection_dim'], chars['embedding']['dim'], chars['filters'], chars['n_highway']
      )

  def embedded(self, params, token_BT):
    if 'char_cnn' not in self.options:
      return jnp.asarray(params['words'])[token_BT]
    return self.words.apply(dict(params=params['words']), self.theirs['chars_of_word'][token_BT])

  def losses(self, params, step, tower, states):
    """The losses of both directions, the states, and the words."""
    at = lambda name: self.theirs[f'{step}/{tower}/{name}']
    losses, found, words = [], [], []
    for way, name in enumerate(('', '_reverse')):
      x_BTD, states_of_way = self.embedded(params, at(f'token{name}')), []
      words += [x_BTD]
      for number, own in enumerate(params['layers'][way]):
        y_BTD, state = self.layer.apply(dict(params=own), x_BTD, states[2 * way + number])
        x_BTD = x_BTD + y_BTD if number and self.skips else y_BTD
        states_of_way.append(state)
      found += states_of_way
      losses.append(jnp.mean(self.nll(params, x_BTD, at(f'next{name}'), step, way)))
    return jnp.stack(losses), (found, words[0])

  def nll(self, params, x_BTD, next_BT, step, way):
    table_VD, bias_V = map(jnp.asarray, params['softmax'])
    if self.options['sample_softmax']:
      drawn = self.candidates(step, way)
      return sampled_softmax.cross_entropy(x_BTD, table_VD, bias_V, next_BT, drawn, len(bias_V))
    logp = jax.nn.log_softmax(x_BTD @ table_VD.T + bias_V[None, None])
    return -jnp.take_along_axis(logp, jnp.asarray(next_BT)[..., None], -1)[..., 0]

  def candidates(self, step, way):
    """Theirs; tries are what their expected counts come from."""
    at = lambda name: self.theirs[f'{step}/candidates/{way}/{name}']
    words, ids, counts = self.options['n_tokens_vocab'], at('ids'), at('sampled_expected')
    share = np.log((ids[0] + 2.0) / (ids[0] + 1.0)) / np.log(words + 1.0)
    tries = np.float64(counts[0]) / share
    if abs(tries - len(ids)) > 1e-3:  # some came twice
      tries = np.log1p(-np.float64(counts[0])) / np.log1p(-share)
    drawn = sampled_softmax.Candidates(jnp.asarray(ids), jnp.int32(round(float(tries))))
    np.testing.assert_allclose(
      sampled_softmax.expected(drawn.id_K, drawn, words), counts, rtol=1e-5
    )
    return drawn


@mutation(
  'clipped(cell_CB + jax.nn.sigmoid(take) * jnp.tanh(new), rules.cell_clip)',
  'cell_CB + jax.nn.sigmoid(take) * jnp.tanh(new)',
)
@mutation('carry * changed + (1 - carry) * x_BTF', 'carry * x_BTF + (1 - carry) * changed')
@pytest.mark.parametrize(
  'name',
  in_tiers(
    ['char_skip_full', 'char_noskip_full', 'char_skip_cellclip', 'char_skip_sampled',
     'word_skip_sampled', 'word_skip_full_2towers'],
    ['char_noskip_full', 'char_skip_cellclip', 'char_skip_sampled', 'word_skip_sampled',
     'word_skip_full_2towers'],
  ),
)  # fmt: skip
def test_a_bilm_is_that_of_bilm_tf(golden, name):
  theirs, config = golden(f'elmo_{name}')
  original = Original(theirs, config)
  params, batch = bilm_of(theirs, 'param/', config['options']), config['options']['batch_size']
  towers = config['n_gpus']

  def loss(params):
    found = [
      original.losses(params, 0, tower, [original.layer.first(batch)] * 4)
      for tower in range(towers)
    ]
    each = jnp.stack([losses for losses, _ in found])
    return jnp.mean(each) * config['options']['unroll_steps'], (each, found[0][1])

  (_, (each, (states, words_BTD))), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(
    params
  )
  np.testing.assert_allclose(each, theirs['0/direction_losses'], rtol=2e-6)
  if towers == 1:
    close = lambda ours, name: np.testing.assert_allclose(ours, theirs[name], rtol=5e-5, atol=2e-6)
    close(words_BTD, '0/embedding')
    for number, state in enumerate(states):
      close(state.cell_BC, f'0/state/{2 * number}')
      close(state.hidden_BP, f'0/state/{2 * number + 1}')
  norm = np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(gradient)))
  np.testing.assert_allclose(norm, theirs['0/grad_norm'], rtol=5e-5)
  if '0/grad/softmax/b' in theirs:
    wanted = bilm_of(theirs, '0/grad/', config['options'])  # before it is clipped at a norm of 10
    found = jax.tree.map(np.asarray, gradient)
    large = norm > 10  # words as large as 57, in float32
    rtol, atol = (3e-4, 1e-3) if large else (2e-5, 5e-6)
    chex.assert_trees_all_close(found, wanted, atol=atol, rtol=rtol)


def random_layer(**fields):
  rng = np.random.default_rng(0)
  layer = LSTM(6, jax.nn.initializers.normal(0.5), jax.nn.initializers.normal(0.5), **fields)
  x_BTI = jnp.asarray(rng.normal(size=(3, 11, 5)), jnp.float32)
  params = nn.meta.unbox(layer.init(jax.random.key(0), x_BTI, layer.first(3)))
  return layer, x_BTI, params


@mutation(
  'new = Turned(*(jnp.where(real_B[None], a, b) for a, b in both))',
  'new = Turned(cell_CB, hidden_PB)',
)
@pytest.mark.parametrize('backward', in_tiers([False, True], [False]))
def test_segments_padding_and_cuts_change_nothing(backward):
  layer, x_BTI, params = random_layer(projection=4, backward=backward)
  whole, after = layer.apply(params, x_BTI, layer.first(3))
  for segment in (2, 5):
    own = layer.clone(segment=segment)
    chex.assert_trees_all_close(own.apply(params, x_BTI, layer.first(3)), (whole, after), rtol=1e-6)
    loss = lambda params, layer: jnp.sum(jnp.square(layer.apply(params, x_BTI, layer.first(3))[0]))
    both = (jax.jit(jax.grad(loss), static_argnums=1)(params, layer) for layer in (layer, own))
    chex.assert_trees_all_close(*both, atol=1e-6, rtol=1e-5)
  padded = jnp.pad(x_BTI, ((0, 0), (0, 4), (0, 0)), constant_values=9.0)
  real_BT = jnp.broadcast_to(jnp.arange(15) < 11, (3, 15))
  found, state = layer.apply(params, padded, layer.first(3), real_BT)
  np.testing.assert_allclose(found[:, :11], whole, rtol=1e-6)
  chex.assert_trees_all_close(state, after, rtol=1e-6)
  parts = (slice(5, None), slice(5)) if backward else (slice(5), slice(5, None))
  state, found = layer.first(3), {}
  for part in parts:
    found[part.start], state = layer.apply(params, x_BTI[:, part], state)
  np.testing.assert_allclose(jnp.concatenate([found[None], found[5]], 1), whole, rtol=1e-6)
  chex.assert_trees_all_close(state, after, rtol=1e-6)


def test_a_layer_is_that_of_torch():
  import torch

  layer, x_BTI, params = random_layer(biases=2)
  theirs = torch.nn.LSTM(5, 6, batch_first=True)
  own = params['params']
  order = np.array([0, 2, 1, 3])  # torch: input, forget, new, output
  flat = lambda leaf: torch.tensor(
    np.moveaxis(np.asarray(leaf)[..., order, :], 0, -1).reshape(24, -1)
  )
  theirs.load_state_dict(
    dict(
      weight_ih_l0=flat(own['input']), weight_hh_l0=flat(own['state']),
      bias_ih_l0=torch.tensor(np.asarray(own['bias'])[order].reshape(-1)),
      bias_hh_l0=torch.tensor(np.asarray(own['state_bias'])[order].reshape(-1)),
    )
  )  # fmt: skip
  wanted, (hidden, cell) = theirs(torch.tensor(np.asarray(x_BTI)))
  found, state = layer.apply(params, x_BTI, layer.first(3))
  np.testing.assert_allclose(found, wanted.detach().numpy(), atol=1e-6)
  np.testing.assert_allclose(state.cell_BC, cell[0].detach().numpy(), atol=1e-6)
  np.testing.assert_allclose(state.hidden_BP, hidden[0].detach().numpy(), atol=1e-6)


@mutation('is_new = going & (id_V[drawn] == 0)', 'is_new = going')
def test_candidates_differ_and_frequent_words_come_first():
  words, count, draws = 50, 8, 1000
  keys = jax.random.split(jax.random.key(1), draws)
  drawn = jax.vmap(lambda key: sampled_softmax.draw(key, count, words))(keys)
  ids, tries = np.asarray(drawn.id_K), np.asarray(drawn.tries)
  assert all(len(set(row)) == count for row in ids) and ids.min() >= 0 and ids.max() < words
  assert tries.min() >= count and tries.mean() > count + 1
  first = np.bincount(ids[:, 0], minlength=words) / draws
  every = np.arange(words)
  np.testing.assert_allclose(
    first, np.log((every + 2) / (every + 1)) / np.log(words + 1), atol=0.04
  )


def test_a_kernel_is_dropped_once_for_all_rows_and_steps():
  layer, x_BTI, params = random_layer(weight_dropout=0.5)
  same = jnp.broadcast_to(x_BTI[:1], x_BTI.shape)
  noise = Noise(jnp.uint32(5), jnp.arange(3, dtype=jnp.uint32))
  found, _ = layer.apply(params, same, layer.first(3), None, noise)
  np.testing.assert_array_equal(found[0], found[2])
  assert np.any(found != layer.apply(params, same, layer.first(3))[0])
  later = noise._replace(row_B=noise.row_B + 7)
  np.testing.assert_array_equal(layer.apply(params, same, layer.first(3), None, later)[0], found)


@mutation('Turned(*(jnp.where(real_B[None], x, 0) for x in later))', 'later')
@mutation(
  'a, b) for a, b in both))\n    return passed', 'a, a) for a, b in both))\n    return passed'
)
@mutation('jax.vjp(clip, weights.project_CP.T @ given_CB)[1](own.hidden_PB)', '(own.hidden_PB,)')
@mutation('reverse=not rules.backward', 'reverse=True')
def test_gradients_are_those_of_the_columns_one_by_one():
  """Those of JAX's own derivative of the scan: of kernels, state and gates, with padding, clips
  that are reached, and a projection, read either way."""
  rng = np.random.default_rng(1)
  draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
  real_TB = jnp.asarray(rng.random((7, 3)) < 0.7)
  wanted = draw(7, 3, 4), lstm.State(draw(3, 6), draw(3, 4))
  for backward in (False, True):
    rules = lstm.Rules(1.0, 0.6, 0.7, backward)

    def loss(read, weights, state, gates_TBGC, rules=rules):
      last, hidden_TBP = read(rules, weights, state, gates_TBGC, real_TB)
      found = jax.tree.map(lambda a, b: jnp.sum(a * b), (hidden_TBP, last), wanted)
      return sum(jax.tree.leaves(found))

    given = lstm.Weights(draw(4, 4, 6), draw(6, 4)), lstm.State(draw(3, 6), draw(3, 4))
    given = *given, draw(7, 3, 4, 6)
    plain = lambda *x: lstm._forward(*x)[0]
    found, want = (jax.grad(loss, (1, 2, 3))(read, *given) for read in (lstm.columns, plain))
    chex.assert_trees_all_close(found, want, atol=2e-6, rtol=1e-5)
  padded = lambda state: lstm.columns(rules, given[0], state, given[2], jnp.zeros((7, 3), bool))[0]
  endless = jax.tree.map(lambda x: jnp.full_like(x, jnp.inf), given[1])
  chex.assert_trees_all_equal(jax.vjp(padded, given[1])[1](endless)[0], endless)
