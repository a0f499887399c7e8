"""Slots of the query stream: spread to their columns and picked up again, and what they see."""

import jax
import jax.numpy as jnp
import numpy as np
from mutation import mutation
from xlnet_cases import LENGTH, ROWS, SLOTS, make_batch

from bertjax.models.layers.two_streams import make_slots, pick, spread


@mutation('  at_BP = jnp.where(used_BP, column_BP, length)', '  at_BP = column_BP')
def test_spread_and_pick_are_transposes_and_leave_unused_slots_out():
  rng = np.random.default_rng(0)
  batch = make_batch()
  slots = make_slots(
    jnp.asarray(batch['target_pos_BP']), jnp.asarray(batch['weight_BP'] > 0), LENGTH
  )
  x = rng.normal(size=(ROWS, SLOTS, 2, 3)).astype(np.float32)
  y = rng.normal(size=(ROWS, LENGTH, 2, 3)).astype(np.float32)
  placed = np.zeros((ROWS, LENGTH, 2, 3), np.float32)
  for b, p in zip(*np.nonzero(batch['weight_BP']), strict=True):
    placed[b, batch['target_pos_BP'][b, p]] = x[b, p]
  np.testing.assert_array_equal(spread(x, slots), placed)
  np.testing.assert_allclose((spread(x, slots) * y).sum(), (x * pick(y, slots)).sum(), rtol=1e-5)
  transpose = lambda f, at, d: jax.vjp(lambda z: f(z, slots), at)[1](d)[0]
  np.testing.assert_array_equal(transpose(spread, x, y), pick(y, slots))
  np.testing.assert_array_equal(transpose(pick, y, x), spread(x, slots))
