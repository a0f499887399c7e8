"""What a discriminator learns where everything is known: the optimum of each loss, by hand.

Tokens are drawn from p, each by itself, and replacements from q, so that the best logit of a token
is one number, which follows from p, q and the rate alone.
"""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mutation import mutation

from bertjax.kernels.cross_entropy import Scores
from bertjax.objectives import rtd
from bertjax.train.step import with_rows
from bertjax.types import Context

P, Q, RATE = np.array([0.7, 0.2, 0.1]), np.array([0.3, 0.2, 0.5]), 0.15
WORDS, ROWS, LENGTH = len(P), 1024, 64


class Known:
  """A generator that draws from q, and a discriminator with one number per word."""

  def __init__(self, generator: str, q: np.ndarray):
    self.generator, self.q, self.init, self.vocab_size = generator, q, None, WORDS

  def apply(self, variables, batch, noise, method):
    return getattr(self, method)(variables, batch)

  def generate(self, variables, batch):
    where_BX = batch['token_BT' if self.generator == 'two_tower' else 'target_BP']
    bias_V = jnp.full(128, -30.0).at[:WORDS].set(np.log(self.q))
    return Scores(jnp.zeros((*where_BX.shape, 1)), jnp.zeros((128, 1)), bias_V, WORDS)

  def discriminate(self, variables, batch):
    return dict(rtd_BT=variables['params'][batch['token_BT']])


def batch_of(seed: int = 0):
  """Random text of which each token is chosen with probability RATE."""
  rng = np.random.default_rng(seed)
  token_BT = rng.choice(WORDS, (ROWS, LENGTH), p=P).astype(np.int32)
  chosen_BT = rng.random((ROWS, LENGTH)) < RATE
  slots = int(chosen_BT.sum(1).max())
  position_BP = np.argsort(~chosen_BT, axis=1, kind='stable')[:, :slots].astype(np.int32)
  weight_BP = np.take_along_axis(chosen_BT, position_BP, 1).astype(np.float32)
  ones = np.ones((ROWS, LENGTH), np.int32)
  return with_rows(
    dict(
      token_BT=token_BT, example_BT=ones, type_BT=0 * ones,
      position_BT=np.arange(LENGTH, dtype=np.int32) + 0 * ones, target_pos_BP=position_BP,
      target_BP=np.take_along_axis(token_BT, position_BP, 1), weight_BP=weight_BP,
      masked_BP=weight_BP,
    )
  )  # fmt: skip


def best_logits(c, q: np.ndarray, monkeypatch) -> np.ndarray:
  """Where the trained loss has no slope: each word's number, by Newton's method damped."""
  monkeypatch.setattr(rtd, 'model_of', lambda model, name, kind: Known(model.generator, q))
  objective, batch = rtd.make(c), batch_of()
  ctx = Context(jax.random.key(0), jnp.int32(0), train=True)

  def loss(number_V):
    term = objective.loss(dict(params=number_V), (), batch, ctx).terms['rtd']
    return term.total / term.weight

  # The loss is a sum over words: its Hessian is diagonal, and a product with ones is all of it.
  slope = lambda x: jax.jvp(jax.grad(loss), (x,), (jnp.ones(WORDS),))
  step, number_V = jax.jit(slope), jnp.zeros(WORDS)
  for _ in range(14):
    grad_V, curvature_V = step(number_V)
    number_V -= jnp.clip(grad_V / curvature_V, -1, 1)
  return np.asarray(number_V)


@mutation('      replaced_BT = drawn(batch)\n', '')
@mutation('return math.log(rate / (1 - rate))', 'return math.log(rate / rate)')
@mutation('odds - cross_entropy(scores, fake_BT)', 'odds - cross_entropy(scores, original_BT)')
def test_the_energy_of_electric_is_minus_log_p(monkeypatch):
  """Noise-contrastive estimation: rate q e^D / (1 - rate) = rate q / ((1 - rate) p), any q."""
  c = cases.config('electra', generator='two_tower', vocab_size=WORDS)
  c.objective.electric = True
  np.testing.assert_allclose(best_logits(c, Q, monkeypatch), -np.log(P), atol=0.1)


UNIFORM, COLD = np.full(WORDS, 1 / WORDS), Q**2 / np.sum(Q**2)


@pytest.mark.parametrize(
  'generator, temperature, q',
  [('own', 1.0, Q), ('uniform', 1.0, UNIFORM), ('own', 0.5, COLD)],
  ids=['as it draws', 'uniform', 'colder'],
)
@mutation("['example_BT'] > 0, fake_BT != original_BT", "['example_BT'] > 0, drawn(batch)")
@mutation('dict(batch, token_BT=fake_BT), dropout.fork', 'dict(batch), dropout.fork')
@mutation(
  'jnp.uint32(self.model.vocab_size)', 'jnp.uint32(self.model.vocab_size - 1)', case='uniform'
)
@mutation('noise, self.settings.temperature)', 'noise, 1.0)', case='colder')
def test_the_logit_of_electra(generator, temperature, q, monkeypatch):
  """A word drawn again is original: log of rate q (1 - p) / (p (1 - rate + rate q))."""
  c = cases.config('electra', generator=generator, vocab_size=WORDS)
  c.objective.temperature = temperature
  expected = np.log(RATE * q * (1 - P) / (P * (1 - RATE + RATE * q)))
  np.testing.assert_allclose(best_logits(c, Q, monkeypatch), expected, atol=0.1)
