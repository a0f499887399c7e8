"""What a recurrent model remembers has no gradient."""

import jax
import jax.numpy as jnp
import numpy as np
from mutation import mutation

from bertjax.models.layers import memory


@mutation('jax.lax.stop_gradient(memory_BMD).astype', 'memory_BMD.astype')
def test_no_gradient_reaches_the_memory():
  x_BTD, held_BMD = jnp.ones((1, 2, 4)), jnp.ones((1, 3, 4))
  through = lambda held: memory.join(held, x_BTD).sum() + memory.push(held, x_BTD).sum()
  assert not np.any(jax.grad(through)(held_BMD))
