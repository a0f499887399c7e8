"""cuDNN's attention without a GPU: the library's call, made by XLA, means what the mask says, and
what the library may leave in padding goes nowhere."""

import types
from typing import Any

import attention_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mutation import mutation

from bertjax.kernels import dropout as dropout_lib
from bertjax.kernels import relative_attention as ra
from bertjax.kernels.relative_attention.gpu import cudnn
from bertjax.kernels.relative_attention.operands import Operands

KINDS: dict[str, dict[str, Any]] = {
  'bidirectional': {},
  'causal': dict(causal=True),
  'window': dict(causal=True, window=5),
  'itself': dict(causal=True, window=1),
  'scaled': dict(scale=0.7),
  # A query whose text has no keys sees nothing.
  'another text': dict(keys=32, key_lengths=(32, 0, 4)),
}
QUERIES = 20
LENGTHS = (20, 7, 0)
# Largest error over the largest value: some roundings of float32, and of bfloat16 (2^-8).
TOLERANCE = {jnp.float32: 1e-5, jnp.bfloat16: 2e-2}


def ids(lengths, columns: int) -> np.ndarray:
  """Example ids of rows of one example each, its id not always 1."""
  real_BL = np.arange(columns) < np.array(lengths)[:, None]
  return np.where(real_BL, np.arange(len(lengths))[:, None] + 1, 0).astype(np.int32)


def build(
  dtype=jnp.float32, keys: int = QUERIES, key_lengths=LENGTHS, scale=None, **kind
) -> cases.Built:
  """A case whose rows have LENGTHS, the last of them empty."""
  case = cases.Case(
    'whole', queries=QUERIES, rows=3, memory=keys - QUERIES, scale=scale, dtype=dtype
  )
  mask = ra.Mask(ids(LENGTHS, QUERIES), ids(key_lengths, keys), whole=True, **kind)
  return cases.build(case)._replace(mask=mask)


def check(built: cases.Built) -> dict[str, np.ndarray]:
  """Compares the library's call with the formula; returns what it gives."""
  call = lambda values: cudnn.call(cases.operands(built, values))
  got, want = cases.with_gradients(built, call, built.values), cases.oracle(built)
  assert set(got) == set(want) == {'y', 'dq', 'dk', 'dv'}
  for key, x in want.items():
    # A window of one key has one probability: no score has a gradient.
    assert abs(x).max() > 0.05 or built.mask.window == 1, key
    error = abs(got[key] - x).max() / max(abs(x).max(), 0.05)
    assert error < TOLERANCE[built.case.dtype], f'{key}: error {error:.2e} of the signal'
  return got


@pytest.mark.parametrize('kind', KINDS)
@mutation(
  'scale=x.scale,', '', file='bertjax/kernels/relative_attention/gpu/cudnn.py', case='scaled'
)
@mutation('jnp.maximum(keys_B, 1)', 'jnp.maximum(queries_B, 1)', case='another text')
@mutation('(mask.window - 1, 0)', '(mask.window, 0)')
@mutation('is_causal=mask.causal,', 'is_causal=False,')
@mutation('key_value_seq_lengths=jnp.maximum(keys_B, 1),', '')
def test_the_call_means_what_the_mask_says(monkeypatch, kind):
  monkeypatch.setattr(cudnn, 'LIBRARY', 'xla')
  check(build(**KINDS[kind]))
  if kind == 'causal':  # what it computes in does not follow from the mask
    check(build(jnp.bfloat16, **KINDS[kind]))
  built = build(jnp.bfloat16, **KINDS[kind])
  assert cudnn.refusal(cases.operands(built, built.values)) is None


def careless(lengths: list):
  """A library that leaves NaN in padding, in what it returns and in its gradients."""
  library = jax.nn.dot_product_attention

  def attention(q, k, v, **said):
    sizes = {name: said[name] for name in ('query_seq_lengths', 'key_value_seq_lengths')}
    lengths.extend(sizes.values())
    attend = lambda q, k, v: library(q, k, v, **said | dict(implementation='xla'))

    def spoilt(x, length_B):
      real_BL = np.arange(x.shape[1])[None] < length_B[:, None]
      return jnp.where(real_BL[:, :, None, None], x, jnp.nan)

    @jax.custom_vjp
    def spoiling(q, k, v):
      return spoilt(attend(q, k, v), sizes['query_seq_lengths'])

    def backward(saved, dy):
      dq, *rest = jax.vjp(attend, *saved)[1](dy)
      of_keys = [spoilt(x, sizes['key_value_seq_lengths']) for x in rest]
      return spoilt(dq, sizes['query_seq_lengths']), *of_keys

    spoiling.defvjp(lambda *qkv: (spoiling(*qkv), qkv), backward)
    return spoiling(q, k, v)

  return attention


@mutation('return _only(y_BTNH, real_BT)', 'return y_BTNH')
@mutation('_only(x.k_BSNH, real_BS),', 'x.k_BSNH,')
@mutation('_only(x.q_BTNH, real_BT),', 'x.q_BTNH,')
def test_what_the_library_leaves_in_padding_goes_nowhere(monkeypatch):
  built, lengths = build(**KINDS['window']), []
  monkeypatch.setattr(jax.nn, 'dot_product_attention', careless(lengths))
  got = check(built)
  blind_BT = ~cases.seen(built.mask).any(2)
  assert blind_BT.sum() == 13 + 20
  for key in got:  # queries and keys are the same columns here
    assert (got[key][blind_BT] == 0).all() and (got[key][~blind_BT] != 0).any()
  lengths.clear()
  cudnn.call(cases.operands(built, built.values))
  for length_B in lengths:
    np.testing.assert_array_equal(length_B, [20, 7, 1])


def refused(size=32, dtype: Any = jnp.bfloat16, memory=0, relative=None, rate=0.0, **said: Any):
  q, k = (jnp.ones((1, length, 1, size), dtype) for length in (8, 8 + memory))
  ones = lambda x: jnp.ones(x.shape[:2], jnp.int32)
  noise = dropout_lib.Noise(jnp.uint32(1), jnp.zeros(1, jnp.uint32))
  said = dict(whole=True) | said
  mask = ra.Mask(ones(q), ones(k), **said)
  dropout = ra.Dropout(rate, noise, jnp.uint32(1))
  return cudnn.refusal(Operands(q, k, k, mask, relative, dropout))


VECTOR = np.ones((1, 8), np.int32)


@pytest.mark.parametrize('operands, why', [
  (dict(dtype=jnp.float32), 'of bfloat16, got float32'),
  (dict(size=36), 'a multiple of 8, got 36'),
  (dict(size=160), 'at most 128 and a multiple of 8, got 160'),
  (dict(memory=3), 'even numbers of queries and keys, got 8 and 11'),
  (dict(rate=0.1), 'no dropout of the probabilities, got 0.1'),
  (dict(relative=ra.Relative(u_NH=jnp.ones((1, 32)))), 'no relative terms, got u_NH'),
  (dict(whole=False), 'rows of one example each'),
  (dict(order_q_BT=VECTOR, order_k_BS=VECTOR), 'no orders'),
  (dict(window=3, causal=True, sinks=1), 'a window that hides every key beyond it, got 1'),
  (dict(window=3), 'got 3 to both sides'),
  (dict(causal=True, memory=4), 'no memory under a causal mask, got 8 queries and 12 keys'),
])  # fmt: skip
@mutation('if not mask.whole:', 'if False:')
def test_refuses_what_the_library_cannot_say(operands, why):
  assert refused() is None
  assert refused(relative=ra.Relative(scale=1.0)) is None
  assert why in refused(**operands)


@pytest.mark.parametrize('capability, size, why', [
  ('7.5', 64, 'got 7.5'), ('8.0', 64, ''), ('8.9', 256, 'got 256'), ('9.0', 256, ''),
  ('gfx90a', 64, 'got gfx90a'),
])  # fmt: skip
@mutation('if card and capability < 8.0:', 'if False:', case='gfx90a-64-got gfx90a')
@mutation('if capability >= 9.0 else', 'if capability >= 8.0 else', case='8.9-256-got 256')
def test_what_a_gpu_takes(monkeypatch, capability, size, why):
  device = types.SimpleNamespace(platform='gpu', compute_capability=capability)
  monkeypatch.setattr(jax, 'devices', lambda: [device])
  said = refused(size=size) or ''
  assert said.endswith(why) and bool(said) == bool(why)


@mutation("gpu='gpu.forward', cudnn", "gpu='gpu.cudnn', cudnn")
def test_it_is_named_or_not_used(monkeypatch):
  """The name runs it or says why not; without one a GPU has our kernel."""
  from bertjax.kernels.relative_attention.gpu import forward

  built = build(jnp.bfloat16)
  q, k, v = (built.values[name] for name in 'qkv')
  packed = ra.Mask(built.mask.example_q_BT, built.mask.example_k_BS)
  with pytest.raises(NotImplementedError, match="whole.*'gpu' and 'xla' take these"):
    ra.relative_attention(q, k, v, packed, impl='cudnn')
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  monkeypatch.setattr(forward, 'attend', lambda *_: 'kernel')
  assert isinstance(ra.relative_attention(q, k, v, built.mask), str)
