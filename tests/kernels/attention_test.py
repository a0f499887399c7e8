"""The attention operation against a loop over rows, heads and queries."""

import jax
import jax.numpy as jnp
import numpy as np

from bertjax.kernels import dropout as dropout_lib
from bertjax.kernels import relative_attention
from bertjax.kernels.relative_attention import Dropout, Mask


def inputs():
  rng = np.random.default_rng(0)
  q, k, v = (rng.normal(size=(2, 6, 3, 8)).astype(np.float32) for _ in range(3))
  return q, k, v, np.array([[1, 1, 2, 2, 2, 0], [1, 1, 1, 1, 0, 0]])


def test_equals_the_definition():
  q_BTNH, k_BSNH, v_BSNH, example_BT = inputs()
  mask = Mask(jnp.asarray(example_BT), jnp.asarray(example_BT))
  got = relative_attention.attend(q_BTNH, k_BSNH, v_BSNH, mask, None)
  want = np.zeros_like(q_BTNH)
  for b, t, n in np.ndindex(2, 6, 3):
    keys = np.nonzero((example_BT[b] == example_BT[b, t]) & (example_BT[b, t] > 0))[0]
    if len(keys):
      score = np.exp(k_BSNH[b, keys, n] @ q_BTNH[b, t, n] / np.sqrt(8))
      want[b, t, n] = score @ v_BSNH[b, keys, n] / score.sum()
  np.testing.assert_allclose(got, want, atol=1e-5)


def test_a_row_that_sees_nothing_is_zero_and_passes_no_gradient():
  q_BTNH, k_BSNH, v_BSNH, example_BT = inputs()
  mask = Mask(jnp.asarray(example_BT), jnp.asarray(example_BT))

  def total(q, k, v):
    y_BTNH = relative_attention.attend(q, k, v, mask, None)
    return jnp.sum(y_BTNH**2), y_BTNH

  slopes, y_BTNH = jax.grad(total, (0, 1, 2), has_aux=True)(q_BTNH, k_BSNH, v_BSNH)
  padding = example_BT == 0
  assert not np.asarray(y_BTNH)[padding].any()
  for slope in slopes:
    assert np.isfinite(slope).all() and not np.asarray(slope)[padding].any()


def test_dropout_falls_on_the_probabilities():
  q_BTNH, k_BSNH, v_BSNH, example_BT = inputs()
  mask = Mask(jnp.asarray(example_BT), jnp.asarray(example_BT))
  noise = dropout_lib.Noise(jnp.uint32(1), jnp.arange(2, dtype=jnp.uint32))
  site = dropout_lib.site(('a',))
  eye_BSNH = np.broadcast_to(np.eye(6, dtype=np.float32)[None, :, None], (2, 6, 3, 6))
  attend = relative_attention.attend  # values that spell out the probabilities
  prob_BTNS = attend(q_BTNH, k_BSNH, eye_BSNH, mask, None)
  dropped_BTNS = attend(q_BTNH, k_BSNH, eye_BSNH, mask, Dropout(0.5, noise, site))
  kept = np.asarray(dropped_BTNS) > 0
  assert 0.3 < kept[np.asarray(prob_BTNS) > 0].mean() < 0.7
  np.testing.assert_allclose(dropped_BTNS, np.where(kept, 2 * prob_BTNS, 0), rtol=1e-6)
