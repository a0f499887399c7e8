"""Tokens chosen as t5x, OpenAI's GPT-2 and transformers choose them, on their own tables."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bertjax.models.layers import decoding
from bertjax.models.layers.decoding import Beams, Sampling

END, NEW = 1, 9


@pytest.fixture(scope='module')
def golden(shared):
  return np.load(shared / 'golden' / 'family' / 'decoding.npz')


@pytest.fixture(scope='module')
def gpt2(shared):
  return np.load(shared / 'golden' / 'family' / 'gpt2_original.npz')


def of_table(table_BTVV):
  """The logits of the first token, a cache and the step of a table: place, last token -> logits."""
  rows = len(table_BTVV)
  table = jnp.asarray(table_BTVV)

  def step(token_n, cache):
    row_n, place_n = cache
    place_n = jnp.minimum(place_n + 1, table.shape[1] - 1)
    return table[row_n, place_n, token_n], (row_n, place_n)

  return table[:, 0, 0], (jnp.arange(rows), jnp.zeros(rows, jnp.int32)), step


def keys(rows, seed=0):
  """The keys of each row's draws."""
  return jax.vmap(lambda row: jax.random.fold_in(jax.random.key(seed), row))(jnp.arange(rows))


def test_beams_are_those_of_t5x(golden):
  logits, cache, step = of_table(golden['table_BTVV'])
  found = decoding.search(logits, cache, step, NEW, END, Beams(4, 0.6))
  theirs = golden['beam/4_0.6/scores'][:, ::-1]
  real = theirs > decoding.FAR / 2
  np.testing.assert_allclose(np.asarray(found.score_BK)[real], theirs[real], rtol=1e-5)
  tokens = golden['beam/4_0.6/sequences'][:, ::-1]
  np.testing.assert_array_equal(np.asarray(found.token_BKN)[real], tokens[real])


@pytest.mark.parametrize(
  ('name', 'beams'),
  [
    (f'{count}_{alpha}_{early}', Beams(count, alpha, 'transformers', early))
    for count, alpha, early in [(4, 0.6, False), (4, 1.0, True), (4, 1.0, 'never')]
  ],
)
def test_beams_are_those_of_transformers(golden, name, beams):
  logits, cache, step = of_table(golden['table_BTVV'])
  found = decoding.search(logits, cache, step, NEW, END, beams)
  theirs = golden[f'hf_beam/{name}/scores'].reshape(-1, beams.count)
  np.testing.assert_allclose(found.score_BK, theirs, rtol=1e-5)
  tokens = golden[f'hf_beam/{name}/sequences'].reshape(len(theirs), beams.count, -1)[..., 1:]
  ours = np.asarray(found.token_BKN)
  for place in np.ndindex(theirs.shape):  # theirs fills up with the end
    own = list(ours[place])
    own = own[: own.index(END) + 1] if END in own else own
    assert own == list(tokens[place][: len(own)]) and set(tokens[place][len(own) :]) <= {END, 0}


def test_the_likeliest_token_is_taken_until_the_end(golden):
  logits, cache, step = of_table(golden['table_BTVV'])
  found = decoding.write(logits, cache, step, NEW, END, Sampling(), keys(len(logits)))
  np.testing.assert_array_equal(found.token_BKN, golden['sample/greedy/sequences'])
  table, place = golden['table_BTVV'], np.arange(NEW)
  for row, (token,) in enumerate(np.asarray(found.token_BKN)):
    logits = table[row, place, [0, *token[:-1]]]
    logp = logits[place, token] - np.log(np.exp(logits).sum(-1))
    np.testing.assert_allclose(
      found.score_BK[row, 0],
      logp[: np.argmax(token == END) + 1 if END in token else NEW].sum(),
      rtol=1e-5,
    )


@pytest.mark.parametrize('k', [1, 5])
def test_top_k_keeps_ties(gpt2, k):
  got = decoding.kept(jnp.asarray(gpt2['sampling/logits']), Sampling(1.0, top_k=k))
  np.testing.assert_array_equal(got > -1e6, gpt2[f'sampling/top_k_{k}'] > -1e6)


@pytest.mark.parametrize('p', [0.3, 0.9])
def test_a_nucleus_has_the_crossing_token_where_it_is_asked_for(gpt2, p):
  logits = jnp.asarray(gpt2['sampling/logits'])
  for crossing, name in ((False, 'top_p'), (True, 'hf_top_p')):
    got = decoding.kept(logits, Sampling(1.0, top_p=p, crossing=crossing))
    np.testing.assert_array_equal(got > -1e6, gpt2[f'sampling/{name}_{p}'] > -1e6)


def test_draws_follow_the_distribution_and_no_row_knows_of_another():
  logits = jnp.log(jnp.array([[0.5, 0.3, 0.2]]))
  table = jnp.broadcast_to(logits, (2000, 3))
  step = lambda token, cache: (table, cache)
  drawn = decoding.write(table, (), step, 1, -1, Sampling(1.0), keys(2000, 3)).token_BKN
  share = np.bincount(np.asarray(drawn).reshape(-1), minlength=3) / 2000
  np.testing.assert_allclose(share, [0.5, 0.3, 0.2], atol=0.04)
  first = lambda token, cache: (table[:7], cache)
  few = decoding.write(table[:7], (), first, 1, -1, Sampling(1.0), keys(7, 3)).token_BKN
  chex.assert_trees_all_equal(few, drawn[:7])
