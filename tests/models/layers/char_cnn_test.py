"""The character CNN's maximum over places, whose gradient is written out."""

import jax
import jax.numpy as jnp
import numpy as np
from mutation import mutation

from bertjax.models.layers import char_cnn


@mutation('windows, grad_BTPF)', 'windows, 2 * grad_BTPF)')
@mutation('grad_BTF / jnp.sum(here_BTPF, 2).astype(grad_BTF.dtype)', 'grad_BTF')
def test_the_gradient_of_the_most_in_any_place_is_that_which_jax_derives():
  draw = np.random.default_rng(0)
  windows = draw.normal(size=(2, 3, 6, 2, 4)).astype(np.float32)
  windows[:, :, 4:] = windows[:, :, 3:4]  # padding: places that find as much
  kernel = draw.normal(size=(2, 4, 5)).astype(np.float32)
  scale_BTF = draw.normal(size=(2, 3, 5)).astype(np.float32)

  def plain(windows, kernel):
    return jnp.max(jnp.einsum('BTPLE,LEF->BTPF', windows, kernel), 2)

  of = lambda most: lambda *given: jnp.sum(scale_BTF * most(*given))
  values = [
    jax.value_and_grad(of(most), (0, 1))(windows, kernel) for most in (char_cnn._highest, plain)
  ]
  tied = np.asarray(values[1][1][0])[:, :, 3:]
  assert np.any(tied) and np.allclose(tied[:, :, 0], tied[:, :, 2])
  jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), *values)
