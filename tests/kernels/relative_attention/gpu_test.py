"""The Triton kernel without a GPU: it lowers for CUDA, and it refuses what it cannot do."""

import re
import types

import attention_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import without_gpu
from mutation import mutation

from bertjax.kernels import relative_attention as ra
from bertjax.kernels.relative_attention import arg_specs
from bertjax.kernels.relative_attention.gpu import forward as gpu_forward
from bertjax.kernels.relative_attention.operands import Operands
from bertjax.kernels.relative_attention.tuning import Entry, Tile, using

ONES = ra.Mask(np.ones((1, 4), np.int32), np.ones((1, 4), np.int32))


def lowered(case: cases.Case) -> str:
  """Forward and backward of a case, lowered for CUDA."""
  built = cases.build(case)

  def loss(values):
    y = ra.relative_attention(*cases.operands(built, values), 'gpu')
    return jnp.sum(y.astype(jnp.float32))

  return without_gpu.lowered(jax.grad(loss), built.values)


@pytest.mark.parametrize(
  'name, dtype',
  [
    ('bert', jnp.bfloat16), ('transformer_xl_head41', jnp.bfloat16), ('t5', jnp.bfloat16),
    ('longformer', jnp.bfloat16), ('all', jnp.float32), ('deberta_and_more', jnp.bfloat16),
  ],
)  # fmt: skip
@mutation('programs, tile.queries, tile.keys + 4', 'plan.queries, tile.queries, plan.keys')
def test_lowers_for_cuda_and_holds_no_scores(name, dtype):
  case = cases.BY_NAME[name]._replace(queries=211, memory=102, dtype=dtype)
  text = lowered(case)
  kernels = 3 + case.bias  # forward, queries, keys; the diagonals where there is a bias table
  assert text.count('custom_call @__gpu$xla.gpu.triton') == kernels
  shapes = {tuple(map(int, dims.split('x'))) for dims in re.findall(r'tensor<([\dx]+)x\w', text)}
  assert (case.rows, case.queries, case.heads, case.size) in shapes
  pairs = {s for s in shapes if 211 in s and max(s[s.index(211) + 1 :], default=0) >= 313}
  band = bool(case.table) and not case.bias or case.biases
  assert pairs == ({(case.heads, case.rows, 211, 528)} if band else set())
  assert ((case.heads, case.rows, 313, 528) in shapes) == case.by_keys


def tiles(stages: int) -> Entry:
  names = ('forward', 'queries', 'keys', 'diagonals')
  return Entry(dict.fromkeys(names, Tile(32, 32, stages=stages)))


@pytest.mark.parametrize(
  'name, ahead', [('bert', [3, 3, 3]), ('t5', [3, 3, 3, 1])], ids=['bert', 't5']
)
@mutation('num_stages=1 if buffer else tile.stages', 'num_stages=tile.stages', case='t5')
@mutation('num_stages=1 if buffer else tile.stages', 'num_stages=1 if buffer else 2', case='bert')
def test_kernels_are_pipelined_but_those_that_read_what_they_stored(name, ahead):
  """Triton's pipelining moves loads across the barrier that orders them after stores to the buffer
  of distances: a kernel that has one must not be pipelined. In this order: forward, queries, keys,
  diagonals."""
  with using((tiles(stages=3),)):
    text = lowered(cases.BY_NAME[name])
  assert [int(n) for n in re.findall(r'num_stages = (\d+)', text)] == ahead


@mutation("if device.platform != 'gpu':\n      return", 'if False:\n      return')
@mutation("if kind is None and target.platform() != 'tpu':", 'if False:')
def test_refuses_by_name_and_says_what_takes_the_operands():
  def attend(size=32, dtype=jnp.float32, impl='gpu'):
    x = jnp.ones((1, 4, 1, size), dtype)
    return ra.relative_attention(x, x, x.astype(jnp.float32), ONES, impl=impl)

  with pytest.raises(NotImplementedError, match="bfloat16, float32; 'xla' takes these"):
    attend(dtype=jnp.bfloat16)
  with pytest.raises(NotImplementedError, match='at most 128, got 160'):
    attend(size=160)
  x = jnp.ones((1, 4, 1, 32))
  for impl, said in dict(gpu="a GPU, got cpu; 'xla'", tpu="a TPU, got cpu; impl='xla'").items():
    with pytest.raises(NotImplementedError, match=f'expected {said}'):
      ra.relative_attention(x, x, x, ONES, impl=impl)


@pytest.mark.parametrize('capability, taken', [('7.5', False), ('9.0', True), ('gfx90a', False)])
def test_refuses_gpus_that_triton_does_not_compile_for(monkeypatch, capability, taken):
  device = types.SimpleNamespace(platform='gpu', compute_capability=capability)
  monkeypatch.setattr(jax, 'devices', lambda: [device])
  x = jnp.ones((1, 4, 1, 32))
  reason = gpu_forward.refusal(Operands(x, x, x, ONES))
  assert reason is None if taken else f'8.0 or above, got {capability}' in str(reason)


@mutation('if kernel in KERNELS:', "if kernel == 'tpu':")
@mutation('_say_fallback(impl, str(declined))', 'pass')
@mutation('@functools.cache\ndef _say_fallback', 'def _say_fallback')
def test_a_gpu_has_the_kernel_where_it_takes_the_operands(monkeypatch, caplog):
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  monkeypatch.setattr(gpu_forward, 'INTERPRET', True)

  def attend(x):
    if gpu_forward.refusal(x):
      raise NotImplementedError('heads of 160')
    return 'kernel'

  monkeypatch.setattr(gpu_forward, 'attend', attend)
  for size, expected in ((32, True), (160, False), (160, False)):
    x = jnp.ones((1, 4, 1, size))
    y = ra.relative_attention(x, x, x, ONES)
    assert isinstance(y, str) == expected
  said = "heads of 160. So attention runs as 'xla', which is slower"
  assert [record.getMessage() for record in caplog.records] == [said]
  with pytest.raises(NotImplementedError, match='heads of 160'):
    ra.relative_attention(x, x, x, ONES, impl='gpu')


@pytest.mark.full
@pytest.mark.parametrize('name', cases.BY_NAME)
@pytest.mark.parametrize('queries, keys', [(32, 16), (16, 32)])
def test_oblong_tiles_give_the_same(monkeypatch, name, queries, keys):
  """Interpreted, with tiles of 16 x 16 and with oblong ones."""
  monkeypatch.setattr(gpu_forward, 'INTERPRET', True)
  built = cases.build(cases.BY_NAME[name])

  def run(tile):
    kernels = dict(forward=tile, queries=tile, keys=tile, diagonals=Tile(16, 16))
    attend = lambda values: ra.relative_attention(*cases.operands(built, values), 'gpu')
    with using((Entry(kernels),)):
      return cases.with_gradients(built, attend, built.values)

  want, got = run(Tile(16, 16)), run(Tile(queries, keys))
  for key, x in want.items():
    tolerance = 1e-5 if built.case.dtype == jnp.float32 else 2e-2
    assert abs(got[key] - x).max() < tolerance * abs(x).max(), key


@pytest.mark.full
def test_every_published_shape_lowers():
  """Traced, and made into Triton's code, at full size; compiled it is on a GPU alone."""
  for shape in arg_specs.SHAPES.values():
    arguments = jax.eval_shape(lambda shape=shape: arg_specs.operands(shape, jax.random.key(0)))

    def loss(x):
      y = ra.relative_attention(*x, impl='gpu')
      return jnp.sum(y.astype(jnp.float32))

    gradient = jax.grad(loss, allow_int=True)
    assert 'xla.gpu.triton' in without_gpu.lowered(gradient, arguments)
