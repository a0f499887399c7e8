"""Sampling from a vocabulary's scores: distribution, and the chunked way against the plain one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mutation import mutation

from bertjax import sharding
from bertjax.kernels import cross_entropy as ce
from bertjax.kernels import sampling
from bertjax.kernels.cross_entropy import Scores, logits
from bertjax.kernels.dropout import Noise, random_bits

mutation('before_nG = until_nG - sum_nG', 'before_nG = until_nG')
mutation('until_nK = until_n[:, None] + jnp.cumsum(', 'until_nK = jnp.cumsum(')
mutation(' & (logits_nK > -jnp.inf)', '')
mutation('else logits_nK / temperature', 'else logits_nK')

WORDS, ROWS, WIDTH = 1000, 1024, 24
SHAPE = (4, 500)  # rows, positions


def scores_of(std: float = 0.4, words: int = WORDS) -> Scores:
  keys = jax.random.split(jax.random.key(0), 3)
  hidden = jax.random.normal(keys[0], (*SHAPE, WIDTH))
  table = std * jax.random.normal(keys[1], (ROWS, WIDTH))
  return Scores(hidden, table, jax.random.normal(keys[2], (ROWS,)), words)


def uniforms():
  noise = Noise(jnp.uint32(5), jnp.arange(SHAPE[0], dtype=jnp.uint32))
  return sampling.uniform(random_bits(noise, jnp.uint32(7), SHAPE))


def drawn(scores, uniform, temperature=1.0, chunks=0):
  def run(arrays):
    given = Scores(*arrays, scores.vocab_size)
    if chunks:
      return sampling.chunked_sample(given, uniform, temperature, chunks)
    return sampling.sample(given, uniform, temperature)

  return np.asarray(jax.jit(run)(scores[:3]))


# chunks, 0 is the plain way; temperature; standard deviation of the scores
@pytest.mark.parametrize(
  'chunks, temperature, std',
  [(0, 1.0, 0.1), (0, 0.5, 2.0), (3, 0.5, 0.1)],
)
def test_the_id_is_the_inverse_of_the_distribution_function(chunks, temperature, std):
  scores, uniform = scores_of(std=std), uniforms()
  ids = drawn(scores, uniform, temperature, chunks=chunks)
  x = np.asarray(logits(scores), np.float64)
  x = np.exp((x - x.max(-1, keepdims=True)) / temperature)
  cdf = np.cumsum(x, -1) / x.sum(-1, keepdims=True)
  at = np.take_along_axis(cdf, ids[..., None], -1)[..., 0]
  before = np.take_along_axis(cdf, np.maximum(ids - 1, 0)[..., None], -1)[..., 0] * (ids > 0)
  u = np.asarray(uniform, np.float64)
  assert np.all((before - 2e-6 <= u) & (u < at + 2e-6) & (at > before))


def test_the_same_uniforms_give_the_same_ids_in_any_number_of_chunks():
  scores, uniform = scores_of(words=210), uniforms()
  plain = drawn(scores, uniform)
  assert len(np.unique(plain)) > 105 and plain.max() < 210
  for chunks in (1, 3, 8):
    np.testing.assert_array_equal(drawn(scores, uniform, chunks=chunks), plain)


@pytest.mark.parametrize('chunks', [0, 8])
def test_extreme_uniforms_draw_words_of_some_probability(chunks):
  loud = scores_of().bias_V.at[WORDS:].set(1e4)  # padding
  scores = scores_of()._replace(bias_V=loud)
  top = sampling.uniform(jnp.uint32(2**32 - 1))
  assert float(top) < 1.0 and float(sampling.uniform(jnp.uint32(0))) == 0.0
  for value in (0.0, float(top)):
    ids = drawn(scores, jnp.full(SHAPE, value), chunks=chunks)
    assert ids.max() < WORDS
    assert (np.asarray(jax.nn.log_softmax(logits(scores)))[0, 0, ids[0, 0]]) > -30


@mutation(
  'ce.chunks_of_a_device(uniform_BP.size, scores.table_VE.shape[0])',
  'uniform_BP.size * scores.table_VE.shape[0] // ce.PLAIN_LOGITS',
)
def test_what_one_device_would_hold_decides(monkeypatch):
  scores, uniform, chunked = scores_of(), uniforms(), []
  monkeypatch.setattr(ce, 'PLAIN_LOGITS', uniform.size * ROWS // 8)
  monkeypatch.setattr(
    sampling, 'chunked_sample', lambda *args: chunked.append(args) or jnp.int32(uniform)
  )
  for count, size in ((8, 2), (1, 1)):
    sizes = dict.fromkeys(('data', 'fsdp', 'tensor'), size)
    with jax.set_mesh(sharding.make_mesh(sizes, jax.devices()[:count])):
      jax.eval_shape(lambda u: sampling.sample(scores, u), uniform)
    assert len(chunked) == (count == 1)
