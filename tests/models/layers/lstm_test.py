"""LSTMs: segments, padding, candidates, dropout and their own derivative. Beside the originals they
stand in models/elmo_golden_test.py and models/awd_lstm_test.py."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from mutation import mutation

from bertjax.kernels import sampled_softmax
from bertjax.kernels.dropout import Noise
from bertjax.models.layers import lstm
from bertjax.models.layers.lstm import LSTM


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
def test_segments_padding_and_cuts_change_nothing():
  layer, x_BTI, params = random_layer(projection=4)
  # Of one sign: where sums cancel, float32 does not say the sixth figure of what is left.
  x_BTI, params = jax.tree.map(lambda x: 0.5 * jnp.abs(x), (x_BTI, params))
  apply = jax.jit(lambda layer, *given: layer.apply(params, *given), static_argnums=0)
  whole, after = apply(layer, x_BTI, layer.first(3))
  own = layer.clone(segment=5)
  chex.assert_trees_all_close(apply(own, x_BTI, layer.first(3)), (whole, after), rtol=1e-6)
  loss = lambda params, layer: jnp.sum(jnp.square(layer.apply(params, x_BTI, layer.first(3))[0]))
  both = (jax.jit(jax.grad(loss), static_argnums=1)(params, layer) for layer in (layer, own))
  chex.assert_trees_all_close(*both, atol=1e-6, rtol=1e-5)
  padded = jnp.pad(x_BTI, ((0, 0), (0, 4), (0, 0)), constant_values=9.0)
  real_BT = jnp.broadcast_to(jnp.arange(15) < 11, (3, 15))
  found, state = apply(layer, padded, layer.first(3), real_BT)
  np.testing.assert_allclose(found[:, :11], whole, rtol=1e-6)
  chex.assert_trees_all_close(state, after, rtol=1e-6)
  before, state = apply(layer, x_BTI[:, :5], layer.first(3))
  behind, state = apply(layer, x_BTI[:, 5:], state)
  np.testing.assert_allclose(jnp.concatenate([before, behind], 1), whole, rtol=1e-6)
  chex.assert_trees_all_close(state, after, rtol=1e-6)


@mutation('sorted_m[1:] != sorted_m[:-1]', 'sorted_m[1:] == sorted_m[1:]')
@mutation('until_n - new_n < count', 'until_n < count')
@mutation('found + jnp.cumsum(new_n)', 'jnp.cumsum(new_n)')
def test_candidates_are_those_that_are_drawn_one_after_the_other():
  rng, count = np.random.default_rng(0), 8
  for words in (9, 12, 40):
    wanted, tries = [], 0
    got = jnp.full(count, -1, jnp.int32), jnp.int32(0), jnp.int32(0)
    while len(wanted) < count:
      drawn_n = rng.integers(words, size=6)
      for drawn in drawn_n:
        tries += len(wanted) < count
        if len(wanted) < count and drawn not in wanted:
          wanted.append(drawn)
      got = sampled_softmax._take(jnp.asarray(drawn_n, jnp.int32), *got)
      assert [*got[0][: len(wanted)]] == wanted and [*map(int, got[1:])] == [len(wanted), tries]


@mutation('jnp.full(count, -1', 'jnp.full(count, 0')
def test_candidates_differ_and_frequent_words_come_first():
  words, count, draws = 50, 8, 1000
  keys = jax.random.split(jax.random.key(1), draws)
  drawn = jax.jit(jax.vmap(lambda key: sampled_softmax.draw(key, count, words)))(keys)
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
@mutation('hidden_TBP), reverse=True', 'hidden_TBP), reverse=False')
def test_gradients_are_those_of_the_columns_one_by_one():
  """Those of JAX's own derivative of the scan: of kernels, state and gates, with padding, clips
  that are reached, and a projection."""
  rng = np.random.default_rng(1)
  draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
  real_TB = jnp.asarray(rng.random((7, 3)) < 0.7)
  wanted = draw(7, 3, 4), lstm.State(draw(3, 6), draw(3, 4))
  rules = lstm.Rules(1.0, 0.6, 0.7)

  def loss(read, weights, state, gates_TBGC):
    last, hidden_TBP = read(rules, weights, state, gates_TBGC, real_TB)
    found = jax.tree.map(lambda a, b: jnp.sum(a * b), (hidden_TBP, last), wanted)
    return sum(jax.tree.leaves(found))

  given = lstm.Weights(draw(4, 4, 6), draw(6, 4)), lstm.State(draw(3, 6), draw(3, 4))
  given = *given, draw(7, 3, 4, 6)
  plain = lambda *x: lstm._forward(*x)[0]
  gradient = jax.jit(jax.grad(loss, (1, 2, 3)), static_argnums=0)
  found, want = (gradient(read, *given) for read in (lstm.columns, plain))
  chex.assert_trees_all_close(found, want, atol=2e-6, rtol=1e-5)
  padded = lambda state: lstm.columns(rules, given[0], state, given[2], jnp.zeros((7, 3), bool))[0]
  endless = jax.tree.map(lambda x: jnp.full_like(x, jnp.inf), given[1])
  chex.assert_trees_all_equal(jax.vjp(padded, given[1])[1](endless)[0], endless)
