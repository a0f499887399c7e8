"""One body for every implementation of the attention operation: output and every gradient."""

import functools

import attention_cases as cases
import jax.numpy as jnp
import pytest
from mutation import mutation

from bertjax.kernels.relative_attention import reference, relative_attention, xla_chunked
from bertjax.kernels.relative_attention.gpu import forward as gpu_forward
from bertjax.kernels.relative_attention.tpu import forward as tpu_forward

mutation('(count - 1 - mine)', '(count - 2 - mine)')
mutation('jnp.full(out[name].shape, zero', 'jnp.full(out[name].shape, 1')
mutation('tile_lib.differ(x, plan, t0, s0), slope', 'tile_lib.differ(x, plan, t0, s0 + 1), slope')
mutation('grow = tile_lib.kept(x, plan, t0, s0)', 'grow = tile_lib.kept(x, plan, t0, s0 + 1)')
mutation('total = total * fade + jnp', 'total = total + jnp')
mutation('pad(flat(x[:, block:]), block, 0)', 'pad(flat(x[:, block:]), 0, block)')
mutation('jnp.where(back_B, 0.0, part_BXNR)', 'part_BXNR')
mutation('- 1 : queries - 1 + queries * (width - 1)', '- 2 : queries - 2 + queries * (width - 1)')
mutation('y.dtype), y], -1)', 'y.dtype) + 1, y], -1)')
mutation('range(count - block, -1, -block)', '[0] * (count // block)')
mutation('furthest + 1), -3)', 'furthest), -3)')
mutation('by_x_BNTH.astype(x_BNTH.dtype)', '0 * by_x_BNTH.astype(x_BNTH.dtype)')
mutation('reshape((-1,) + (1,) * table.ndim) < 0', 'reshape((-1,) + (1,) * table.ndim) < -1')
mutation('other_BTS[:, None], either_BNT2[..., 1:]', '~other_BTS[:, None], either_BNT2[..., 1:]')
mutation('+= jnp.asarray(place.first).astype(jnp.uint32)', '+= jnp.asarray(0).astype(jnp.uint32)')
mutation('(key < sinks, 0, jnp.asarray(place.low))', '(key < 0, 0, jnp.asarray(place.low))')
mutation('low=place.low + begin * moves', 'low=place.low')
mutation('jnp.where(jnp.arange(keys) < sinks, 0, x_BS)', 'x_BS')
mutation('-(min(reach, -near) // -size)', '0 * -(min(reach, -near) // -size)')
mutation(
  '(jnp.abs(distance_bb) < shape.window) | (s_bb < shape.sinks)',
  'jnp.abs(distance_bb) < shape.window',
)
mutation('* jnp.uint32(place.keys) + key', '* jnp.uint32(shape[2]) + key')
mutation('found, relative = [0] if self.mask.causal', 'found, relative = [1] if self.mask.causal')
mutation('min(high, last - near + 1)', 'min(high, last - near)')
mutation('max(first - window + 1, 0)', 'max(first - window + 2, 0)')
mutation('jnp.abs(distance_TS) < mask.window', 'jnp.abs(distance_TS) <= mask.window')
mutation('found += [last] if last > 1 - self.q_BTNH.shape[1] else []', 'found += []')
mutation('pltpu.roll(x, width - block + 1, 1, stride=1', 'pltpu.roll(x, width - block, 1, stride=1')
mutation('y_scr[...] = y_scr[...] * fade + dot', 'y_scr[...] = y_scr[...] + dot')
mutation('dk_ref[0] = dk_sum[...].astype', 'dk_ref[0] = 0 * dk_sum[...].astype')
mutation('* shape.keys + s_bb', '* (shape.keys + 1) + s_bb')
mutation('dot(by_distance, tile.r_2b, (1, 0))', '0 * dot(by_distance, tile.r_2b, (1, 0))')

# Largest error over the largest value: some roundings of float32, and of bfloat16 (2^-8).
TOLERANCE = {'float32': 1e-5, 'bfloat16': 2e-2}


@functools.cache
def problem(name: str):
  built = cases.build(cases.BY_NAME[name])
  return built, cases.oracle(built)


# The quick tier's: what the other cases have, these have too. Interpreted kernels are slow to
# compile; XLA's way splits rows by its own rules.
FEW = ('bert', 'all', 'all_bfloat16')
MORE = (*FEW, 'transformer_xl', 'deberta_and_more')
MOST = (*MORE, 'xlnet', 't5', 'alibi', 'transformer_xl_long', 'longformer_long')
QUICK = dict(reference=MORE, xla=MOST, gpu=(*FEW, 'deberta_and_more'), tpu=FEW)


@pytest.fixture
def impl(request, monkeypatch):
  """An implementation with blocks so small that every case has several."""
  monkeypatch.setattr(reference, 'BLOCK', 4)
  monkeypatch.setattr(xla_chunked, 'WHOLE', 0)
  monkeypatch.setattr(xla_chunked, 'SCORES', 256)
  monkeypatch.setattr(xla_chunked, 'SPAN', 4)
  monkeypatch.setattr(gpu_forward, 'INTERPRET', True)
  interpreted = functools.partial(tpu_forward.attend, kind='TPU v5 lite', interpret=True)
  monkeypatch.setattr(tpu_forward, 'attend', interpreted)
  with cases.small_tiles():
    yield request.param


PAIRS = [
  pytest.param(impl, name, marks=() if name in QUICK[impl] else pytest.mark.full)
  for impl in QUICK
  for name in cases.BY_NAME
  if impl != 'reference' or not name.endswith('_long')  # long rows have other blocks in the others
]


@pytest.mark.parametrize('impl, name', PAIRS, indirect=['impl'])
@mutation('column < plan.size,', 'column < plan.padded,', case='gpu-transformer_xl_head41')
@mutation('relative.p_RNH[::-1], mirrored', 'relative.p_RNH, mirrored', case='gpu-deberta_and_more')
@mutation('far=relative.rows - 1 - relative.far', 'far=relative.far', case='gpu-deberta')
@mutation('filter(out.__contains__, BANDS):', "('band_NBTR',):", case='gpu-deberta_and_more')
def test_equals_the_formula_in_float64(impl, name):
  built, want = problem(name)
  attend = lambda values: relative_attention(*cases.operands(built, values), impl)
  got = cases.with_gradients(built, attend, built.values)
  assert set(got) == set(want)
  tolerance = TOLERANCE[jnp.dtype(built.case.dtype).name]
  for key, x in want.items():
    assert abs(x).max() > 0.05, key  # there is a signal
    error = abs(got[key] - x).max() / abs(x).max()
    assert error < tolerance, f'{key}: error {error:.2e} of the signal'
