"""The bound of -log p, against laws whose likelihood is known, and as a run reports it."""

import functools
import itertools
import math

import numpy as np
import pytest
from mutation import mutation
from toy_store import MASK

from bertjax.evals import bound

WORDS = 4


def rows_of(token_BT):
  token_BT = np.asarray(token_BT, np.int32)
  return dict(token_BT=token_BT, example_BT=(token_BT > 0).astype(np.int32))


@mutation('(length_B / np.maximum(k_B, 1))', '(k_B / np.maximum(length_B, 1))')
@mutation('np.where(real_BT, turn_BT, 2.0)', 'turn_BT')
@mutation('np.argsort(~hidden_BT, 1', 'np.argsort(hidden_BT, 1')
def test_exactly_k_tokens_are_hidden_and_weigh_as_all():
  rows = 4000
  token_BT = np.tile([[5, 6, 7, 8, 9, 10, 0, 0]], (rows, 1))
  found = bound.hidden(rows_of(token_BT), np.arange(rows), 3, MASK)
  used_BP = found['weight_BP'] > 0
  k_B = used_BP.sum(1)
  assert (np.diff(used_BP.astype(int), axis=1) <= 0).all()  # used slots come first
  assert np.bincount(k_B, minlength=7)[1:] / rows == pytest.approx(np.full(6, 1 / 6), abs=0.002)
  np.testing.assert_allclose(found['weight_BP'].sum(1), 6, rtol=1e-6)
  shown_BP = np.take_along_axis(found['token_BT'], found['target_pos_BP'], 1)
  assert (shown_BP[used_BP] == MASK).all() and ((found['token_BT'] == MASK).sum(1) == k_B).all()
  original_BP = np.take_along_axis(token_BT, found['target_pos_BP'], 1)
  assert (original_BP == found['target_BP'])[used_BP].all()
  assert (found['token_BT'][:, 6:] == 0).all()  # padding stays
  hit_T = np.bincount(found['target_pos_BP'][used_BP], minlength=8)[:6] / used_BP.sum()
  assert abs(hit_T - 1 / 6).max() < 0.01


def bound_of(law, length, draws=2000):
  """The bound by the exact predictions of a law, text -> P; and its entropy a token."""
  texts = [t for t in itertools.product(range(5, 5 + WORDS), repeat=length) if law(t) > 0]
  rng = np.random.default_rng(0)
  drawn_n = rng.choice(len(texts), draws, p=[law(t) for t in texts])
  batch = bound.hidden(rows_of([texts[i] for i in drawn_n]), np.arange(draws), 0, MASK)
  fits = functools.cache(
    lambda shown: [t for t in texts if all(a in (MASK, b) for a, b in zip(shown, t, strict=True))]
  )
  nll_B = np.zeros(draws)
  for row, token_T in enumerate(batch['token_BT'].tolist()):
    seen = fits(tuple(token_T))
    whole = sum(law(t) for t in seen)
    for column, word, weight in zip(
      batch['target_pos_BP'][row], batch['target_BP'][row], batch['weight_BP'][row], strict=True
    ):
      if weight:
        nll_B[row] -= weight * math.log(sum(law(t) for t in seen if t[column] == word) / whole)
  entropy = -sum(law(t) * math.log(law(t)) for t in texts)
  return bound.summed(nll_B[:, None], np.full(draws, length)), entropy / length


def markov(text):
  """Each word is the one before it, or the next one, or any, from a first one that may be any."""
  p = 1 / WORDS
  for a, b in itertools.pairwise(text):
    p *= 0.6 * (a == b) + 0.3 * ((a - 5 + 1) % WORDS == b - 5) + 0.1 / WORDS
  return p


@mutation('np.ceil(times(number_B, seed, 0.0) * length_B)', 'np.ceil(0.5 * length_B)')
def test_a_perfect_model_is_bounded_by_the_entropy_of_its_law():
  """Two equal tokens cost ln V in all; a chain costs its entropy, within the standard error."""
  found, entropy = bound_of(lambda t: (t[0] == t[1]) / WORDS, 2)
  assert entropy == pytest.approx(math.log(WORDS) / 2)
  assert found['bound'] == pytest.approx(entropy, abs=1e-3)  # as many draws hide one as both
  found, entropy = bound_of(markov, 3)
  assert found['bound'] == pytest.approx(entropy, abs=3 * found['standard_error'])
  assert 0.003 < found['standard_error'] < 0.03
  assert found['perplexity'] == math.exp(found['bound'])


@mutation('* rows / (rows - 1)', '* rows')
@mutation('if rows == 1:', 'if not rows:')
@mutation('nll_N - bound * length_N', 'nll_N')
def test_the_standard_error_is_that_of_many_samples_of_rows():
  rng, found = np.random.default_rng(0), []
  for _ in range(1000):
    length_N = rng.integers(5, 20, 40)
    noise_ND = rng.normal(0, 4, (40, 2)) + rng.normal(0, 3, (40, 1))
    found.append(bound.summed(3.0 * length_N[:, None] + noise_ND, length_N))
  error = np.sqrt(np.mean([each['standard_error'] ** 2 for each in found]))
  assert np.std([each['bound'] for each in found]) == pytest.approx(error, rel=0.06)
  assert set(bound.summed(np.array([[5.0, 7.0]]), np.array([2]))) == {'bound', 'perplexity'}
