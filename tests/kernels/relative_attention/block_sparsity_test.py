"""Which blocks a kernel visits: all that hold a visible pair, and no other where masks are tidy."""

import attention_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mutation import mutation

from bertjax.kernels.relative_attention import block_sparsity
from bertjax.kernels.relative_attention.operands import Mask

mutation('of_k(jnp.min, mask.order_k_BS, _FAR)\n', 'of_k(jnp.min, mask.order_k_BS, _FAR) + 1\n')
mutation('& (least_IJ < mask.window)', '& (least_IJ < 2 * mask.window)')
mutation('& (least_IJ < mask.window)', '& (least_IJ < mask.window - block_k)')

mutation('may_BIJ &= (inside_IJ | (first_k_1J < mask.sinks))[None]', 'pass')
mutation('may_BIJ &= (most_IJ >= near)[None]', 'pass')

TIDY = ('bert', 'transformer_xl', 'alibi')


@pytest.mark.parametrize('name', cases.BY_NAME)
def test_every_block_with_a_visible_pair_is_visited(name):
  case = cases.BY_NAME[name]
  built = cases.build(case)
  near = cases.operands(built, built.values).nearest
  seen = cases.seen(built.mask, near)
  find = jax.jit(block_sparsity.seen, static_argnums=(1, 2, 3, 4))
  for block_q, block_k in ((4, 4), (8, 2)):
    got = np.asarray(find(built.mask, case.memory, near, block_q, block_k))
    want = np.pad(seen, ((0, 0), (0, -seen.shape[1] % block_q), (0, -seen.shape[2] % block_k)))
    want = want.reshape(-1, got.shape[1], block_q, got.shape[2], block_k).any((2, 4))
    assert not (want & ~got).any()
    if name in TIDY:
      np.testing.assert_array_equal(got, want)


def test_a_causal_window_visits_a_band():
  """64 queries behind 64 keys of memory that see 16 keys each, in blocks of 8: three blocks."""
  ones = jnp.ones((1, 128), jnp.int32)
  mask = Mask(ones[:, 64:], ones, window=17, causal=True)
  count, index = block_sparsity.visits(block_sparsity.seen(mask, 64, 0, 8, 8))
  assert count.tolist() == [[3] * 8]
  assert index[0, :, :3].tolist() == [[i + 6, i + 7, i + 8] for i in range(8)]
  # A block that does not change is not fetched again: the list goes on with its last one.
  assert index[0, :, 3:].tolist() == [[i + 8] * 13 for i in range(8)]
