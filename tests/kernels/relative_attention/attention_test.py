"""One body for every implementation of the attention operation: output and every gradient."""

import functools

import attention_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bertjax.kernels.relative_attention import relative_attention, xla_chunked
from bertjax.kernels.relative_attention.gpu import forward as gpu_forward
from bertjax.kernels.relative_attention.tpu import forward as tpu_forward

# Largest error over the largest value: some roundings of float32, and of bfloat16 (2^-8).
TOLERANCE = {'float32': 1e-5, 'bfloat16': 2e-2}


@functools.cache
def problem(name: str):
  built = cases.build(cases.BY_NAME[name])
  return built, cases.oracle(built)


def run(built, impl):
  def attend(values):
    relative = cases.fill(built, values)
    q, k, v = (values[name] for name in 'qkv')
    return relative_attention(q, k, v, built.mask, relative, built.dropout, impl)

  return cases.with_gradients(built, attend, built.values)


# Interpreted kernels are slow to compile: what their other cases have, these have too.
QUICK = ('bert', 'all', 'all_bfloat16')
KERNELS = ('gpu', 'tpu')
FULL = pytest.mark.full


@pytest.fixture(params=['reference', 'xla', *(pytest.param(k, marks=FULL) for k in KERNELS)])
def impl(request, monkeypatch):
  """An implementation with blocks so small that every case has several."""
  monkeypatch.setattr(xla_chunked, 'WHOLE', 0)
  monkeypatch.setattr(xla_chunked, 'SCORES', 256)
  monkeypatch.setattr(gpu_forward, 'INTERPRET', True)
  interpreted = functools.partial(tpu_forward.attend, kind='TPU v5 lite', interpret=True)
  monkeypatch.setattr(tpu_forward, 'attend', interpreted)
  with cases.small_tiles():
    yield request.param


PAIRS = [
  pytest.param(impl, name, marks=FULL if impl in KERNELS and name not in QUICK else ())
  for impl in ('reference', 'xla', *KERNELS)
  for name in cases.BY_NAME
]


@pytest.mark.parametrize('impl, name', PAIRS, indirect=['impl'])
def test_equals_the_formula_in_float64(impl, name):
  built, want = problem(name)
  got = run(built, impl)
  assert set(got) == set(want)
  tolerance = TOLERANCE[jnp.dtype(built.case.dtype).name]
  for key, x in want.items():
    assert abs(x).max() > 0.05, key  # there is a signal
    error = abs(got[key] - x).max() / abs(x).max()
    assert error < tolerance, f'{key}: error {error:.2e} of the signal'


def test_the_same_operands_give_the_same_bits(impl):
  built, _ = problem('all')
  once, again = run(built, impl), run(built, impl)
  for key, x in once.items():
    np.testing.assert_array_equal(again[key], x, err_msg=key)


def test_backward_drops_what_forward_dropped(impl):
  """With unit vectors as values the output is the dropped probabilities, and with unit tangents
  their gradient is the same again, transposed."""
  size = 32
  case = cases.Case('unit', queries=size, size=size, rows=2, rate=0.3)
  built = cases.build(case)
  unit_BTNH = jnp.broadcast_to(jnp.eye(size)[None, :, None], (2, size, case.heads, size))
  q, k = built.values['q'], built.values['k']
  attend = lambda v: relative_attention(q, k, v, built.mask, None, built.dropout, impl)
  prob_BTNS, pull = jax.vjp(attend, unit_BTNH)
  (slope_BSNT,) = pull(unit_BTNH)
  assert 0.1 < (prob_BTNS > 0).mean() < 0.5
  np.testing.assert_array_equal(jnp.swapaxes(slope_BSNT, 1, 3) > 0, prob_BTNS > 0)
  np.testing.assert_allclose(jnp.swapaxes(slope_BSNT, 1, 3), prob_BTNS, rtol=1e-6, atol=1e-7)
