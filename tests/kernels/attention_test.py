"""One body for every implementation of the attention operation: output and every gradient."""

import functools

import attention_cases as cases
import jax.numpy as jnp
import pytest

from bertjax.kernels.relative_attention import relative_attention, xla

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


@pytest.fixture(params=['reference', 'xla'])
def impl(request, monkeypatch):
  """An implementation with blocks so small that every case has several."""
  monkeypatch.setattr(xla, 'SCORES', 256)
  return request.param


@pytest.mark.parametrize('name', cases.BY_NAME)
def test_equals_the_formula_in_float64(impl, name):
  built, want = problem(name)
  got = run(built, impl)
  assert set(got) == set(want)
  tolerance = TOLERANCE[jnp.dtype(built.case.dtype).name]
  for key, x in want.items():
    assert abs(x).max() > 0.05, key  # there is a signal
    error = abs(got[key] - x).max() / abs(x).max()
    assert error < tolerance, f'{key}: error {error:.2e} of the signal'
