"""The counter hash behind dropout: uniform bits, and streams that do not know each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mutation import mutation

from bertjax.kernels import dropout as lib

SHAPE = (8, 64, 96)  # 49k draws


def noise(seed: int = 1, rows=None) -> lib.Noise:
  rows = np.arange(SHAPE[0]) if rows is None else np.asarray(rows)
  return lib.Noise(jnp.uint32(seed), jnp.asarray(rows, jnp.uint32))


def bits(seed: int = 1, rows=None, site=None, shape=SHAPE) -> np.ndarray:
  site = lib.site(('a',)) if site is None else site
  n = noise(seed, rows)
  return np.asarray(lib.random_bits(n, site, (len(n.row_B),) + shape[1:]))


def correlation(a, b) -> float:
  """Of two uint32 arrays, in standard errors."""
  centre = lambda x: x.reshape(-1).astype(np.float64) / 2**32 - 0.5
  return float((centre(a) * centre(b)).mean() * 12 * np.sqrt(a.size))


@pytest.mark.parametrize('rate', [0.1, 0.5])
def test_rate_and_scale(rate):
  x = jnp.ones(SHAPE)
  y = np.asarray(lib.dropout(x, rate, noise(), lib.site(('a',))))
  sigma = np.sqrt(rate * (1 - rate) / y.size)
  assert abs((y == 0).mean() - rate) < 4 * sigma
  np.testing.assert_allclose(np.unique(y), [0, 1 / (1 - rate)], rtol=1e-6)
  slope = jax.grad(lambda x: lib.dropout(x, rate, noise(), lib.site(('a',))).sum())(x)
  np.testing.assert_array_equal(slope, y)  # what is dropped passes no gradient


def test_off_without_noise_or_rate():
  x = jnp.ones(SHAPE)
  assert lib.dropout(x, 0.1, None, lib.site(('a',))) is x
  assert lib.dropout(x, 0.0, noise(), lib.site(('a',))) is x


@mutation('noise.row_B * jnp.uint32(_GOLDEN) + noise', 'noise.row_B * jnp.uint32(0) + noise')
def test_each_bit_is_balanced_and_bytes_are_uniform():
  draws = bits()
  sigma = 0.5 / np.sqrt(draws.size)
  for k in range(32):
    assert abs(((draws >> k) & 1).mean() - 0.5) < 4.5 * sigma, f'bit {k}'
  for shift in (0, 8, 16, 24):
    seen = np.bincount(((draws >> shift) & 255).reshape(-1), minlength=256)
    expected = draws.size / 256
    chi2 = ((seen - expected) ** 2 / expected).sum()
    assert abs(chi2 - 255) < 5 * np.sqrt(2 * 255), f'byte at {shift}'


def test_rows_seeds_sites_and_layers_are_independent():
  one = bits(rows=[0])
  others = {
    'row': bits(rows=[1]),
    'far row': bits(rows=[2**20]),
    'seed': bits(rows=[0], seed=2),
    'site': bits(rows=[0], site=lib.site(('b',))),
    'layer': bits(rows=[0], site=lib.site(('a',), 1)),
    'path': bits(rows=[0], site=lib.site(('a', 'a'))),
  }
  for name, other in others.items():
    assert (one != other).mean() > 0.999, name
    assert abs(correlation(one, other)) < 4.5, name


def test_a_row_draws_the_same_in_any_batch():
  whole, part = bits(), bits(rows=[5, 2])
  np.testing.assert_array_equal(part, whole[[5, 2]])
