"""Tables of positions and distances."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mutation import mutation

from bertjax.kernels.dropout import noise_from_key
from bertjax.models.layers import positions


@mutation('if in_turn else', 'if not in_turn else')
def test_sinusoids_of_distances_are_those_of_transformer_xl():
  found = positions.sinusoids(np.array([3, 0, -2]), 8)
  assert found.shape == (3, 8)
  np.testing.assert_allclose(found[1], [0] * 4 + [1] * 4)
  np.testing.assert_allclose(found[0, [1, 5]], [np.sin(0.3), np.cos(0.3)], rtol=1e-6)
  np.testing.assert_allclose(found[2, 3], np.sin(-2 / 1000), rtol=1e-6)
  clamped = positions.sinusoids(np.array([9, 3, -9]), 8, clamp=3)
  np.testing.assert_array_equal(clamped[:2], found[[0, 0]])
  np.testing.assert_allclose(clamped[2, :4], -found[0, :4])


@mutation('** (np.arange(0, width, 2) / width)', '** (np.arange(1, width + 1, 2) / width)')
def test_sinusoids_in_turn_are_those_of_xlm():
  """transformer.py:create_sinusoidal_embeddings, entry by entry."""
  ours = positions.sinusoids(np.arange(40), 12, in_turn=True)
  for position in range(40):
    for entry in range(12):
      angle = position / 10000 ** (2 * (entry // 2) / 12)
      expected = np.cos(angle) if entry % 2 else np.sin(angle)
      assert ours[position, entry] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize('rate', [0.0, 0.5])
@mutation('jnp.zeros(1, jnp.uint32)', 'noise.row_B[:1]', file='bertjax/kernels/dropout.py')
def test_the_table_is_dropped_alike_for_all_rows_of_a_batch(rate):
  table = positions.DistanceTable(rate)
  noise = lambda row: noise_from_key(jax.random.key(0), jnp.array(row))
  drawn = lambda noise: np.asarray(table.apply({}, np.arange(5), 8, 0, noise))
  first = drawn(noise([0, 1]))
  np.testing.assert_array_equal(first, drawn(noise([7])))
  same = np.array_equal(first, drawn(None))
  assert same == (rate == 0)
