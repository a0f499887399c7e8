"""XLA's own account of attention under a window, as CPUs run it."""

import functools

import jax
import jax.numpy as jnp
import pytest
from mutation import mutation

from bertjax.kernels.relative_attention import Mask, relative_attention, xla_chunked

SIDE = 256  # tokens seen on each side, Longformer's (docs/long.md)


def flops(monkeypatch, length: int, window: int | None, sinks: int = 0) -> float:
  """FLOPs of forward and backward. The account counts a loop's body once, so loops are unrolled."""
  monkeypatch.setattr(jax.lax, 'scan', functools.partial(jax.lax.scan, unroll=True))

  def total(q_BTNH, k_BSNH):
    ones = lambda x: jnp.ones(x.shape[:2], jnp.int32)
    mask = Mask(ones(q_BTNH), ones(k_BSNH), window=window, sinks=sinks)
    return relative_attention(q_BTNH, k_BSNH, k_BSNH, mask, impl='xla').sum()

  q, k = (jax.ShapeDtypeStruct((1, n, 1, 64), jnp.float32) for n in (length, length + sinks))
  cost = jax.jit(jax.grad(total, (0, 1))).lower(q, k).cost_analysis()
  monkeypatch.undo()
  return cost['flops']


@pytest.mark.parametrize('sinks', [0, 8])
@mutation('return window is not None and max', 'return False and max')
def test_a_window_makes_the_cost_linear_in_the_length(monkeypatch, sinks):
  """Twice the length is twice the work, to 3%; of 4,096 tokens full rows are 4 times as much."""
  monkeypatch.setattr(xla_chunked, 'WHOLE', 2**30)  # a full row is one block
  count = functools.partial(flops, monkeypatch)
  once, twice = (count(n, SIDE + 1, sinks) for n in (4096, 8192))
  assert twice == pytest.approx(2 * once, rel=0.03) and count(4096, None) > 4 * once


@mutation('most = 3 if sinks else SPANS', 'most = SPANS')
def test_beside_sinks_rows_of_a_few_windows_cost_less_than_full_ones(monkeypatch):
  """There are no runs of queries there: a row slides, or sees all."""
  monkeypatch.setattr(xla_chunked, 'WHOLE', 2**30)
  length = 4 * (SIDE + 1)
  assert flops(monkeypatch, length, SIDE + 1, 8) < 0.8 * flops(monkeypatch, length, None)
