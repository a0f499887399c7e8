"""Which blocks a kernel visits: all that hold a visible pair, and no other where masks are tidy."""

import attention_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bertjax.kernels.relative_attention import fold
from bertjax.kernels.relative_attention.operands import Mask

TIDY = ('bert', 'transformer_xl', 'alibi')


@pytest.mark.parametrize('name', cases.BY_NAME)
def test_every_block_with_a_visible_pair_is_visited(name):
  built = cases.build(cases.BY_NAME[name])
  values = {k: jnp.asarray(x) for k, x in built.values.items()}
  relative = cases.fill(built, values)
  q, k, v = (values[k] for k in 'qkv')
  _, vectors, rules = fold.fold(q, k, v, built.mask, relative, built.dropout)
  seen = cases.seen(built.mask, rules.near)
  for block_q, block_k in ((4, 4), (8, 2), (16, 32)):
    got = np.asarray(
      jax.jit(fold.visits, static_argnums=(1, 2, 3))(vectors, rules, block_q, block_k)
    )
    want = np.pad(seen, ((0, 0), (0, -seen.shape[1] % block_q), (0, -seen.shape[2] % block_k)))
    want = want.reshape(-1, got.shape[1], block_q, got.shape[2], block_k).any((2, 4))
    assert not (want & ~got).any()
    if name in TIDY:
      np.testing.assert_array_equal(got, want)


def test_a_causal_window_visits_a_band():
  """64 queries behind 64 keys of memory that see 16 keys each, in blocks of 8: three blocks."""
  column = jnp.arange(128, dtype=jnp.int32)[None]
  ones = jnp.ones((1, 128), jnp.int32)
  mask = Mask(ones[:, 64:], ones, column[:, 64:] + 1, column, window=17)
  x = jnp.zeros((1, 128, 1, 8))
  _, vectors, rules = fold.fold(x[:, 64:], x, x, mask, None, None)
  order, count = fold.listed(fold.visits(vectors, rules, 8, 8))
  assert count.tolist() == [[3] * 8]
  assert order[0, :, :3].tolist() == [[i + 6, i + 7, i + 8] for i in range(8)]
