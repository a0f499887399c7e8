"""What a recurrent model remembers."""

import types

import jax
import jax.numpy as jnp
import numpy as np
from mutation import mutation

from bertjax.models.layers import memory


def model(mem_len: int):
  """What a memory needs to know of a model."""
  return types.SimpleNamespace(layers=3, mem_len=mem_len, width=4, dtype='float32')


@mutation('both[:, both.shape[1] - length :]', 'both[:, :length]')
def test_memory_keeps_the_last_places_and_reports_what_is_filled():
  held = memory.first(model(5), 2, 'empty')
  assert isinstance(held, memory.Memory) and not held.example_BM.any()
  new_BT = jnp.arange(1, 9).reshape(2, 4)
  once_BM = memory.push(held.example_BM, new_BT)
  np.testing.assert_array_equal(once_BM, [[0, 1, 2, 3, 4], [0, 5, 6, 7, 8]])
  np.testing.assert_array_equal(memory.push(once_BM, new_BT, keep=2)[0], [2, 3, 4, 1, 2])
  np.testing.assert_array_equal(memory.push(once_BM, jnp.tile(new_BT, 2))[0, :2], [4, 1])
  assert memory.first(model(0), 2, 'empty') == ()


@mutation('jax.lax.stop_gradient(memory_BMD).astype', 'memory_BMD.astype')
def test_no_gradient_reaches_the_memory():
  x_BTD, held_BMD = jnp.ones((1, 2, 4)), jnp.ones((1, 3, 4))
  through = lambda held: memory.join(held, x_BTD).sum() + memory.push(held, x_BTD).sum()
  assert not np.any(jax.grad(through)(held_BMD))
