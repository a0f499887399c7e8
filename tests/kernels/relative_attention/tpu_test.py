"""What is particular to the TPU kernel: meshes, v4's rotation, refusals, compilation."""

import importlib.util
import os
import subprocess
import sys

import attention_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mutation import mutation

from bertjax.kernels import target
from bertjax.kernels.relative_attention import Mask, Relative, relative_attention, sharded
from bertjax.kernels.relative_attention.tpu import forward as tpu_forward
from bertjax.kernels.relative_attention.tpu import tile as tile_lib


def attend(operands):
  """Interpreted, with tiles of 16."""
  with cases.small_tiles():
    return tpu_forward.attend(operands, kind='TPU v5 lite', interpret=True)


def test_rotation_without_the_strided_one():
  x = jnp.arange(16 * 32, dtype=jnp.float32).reshape(16, 32)
  turned = lambda sign: np.stack([np.roll(row, sign * (15 - i)) for i, row in enumerate(x)])
  ways = {(False, False): -1, (False, True): -1, (True, False): 1}  # (back, strided)

  def kernel(x_ref, *refs):
    for ref, (back, strided) in zip(refs, ways, strict=True):
      ref[...] = tile_lib.turn(x_ref[...], 16, back, strided)

  like = jax.ShapeDtypeStruct(x.shape, x.dtype)
  found = tile_lib.pl.pallas_call(kernel, out_shape=(like,) * 3, interpret=True)(x)
  for way, sign in zip(found, ways.values(), strict=True):
    np.testing.assert_array_equal(way, turned(sign))


@pytest.mark.full
@mutation('first = jax.lax.axis_index(across) * x.q_BTNH.shape[2]', 'first = 0')
@pytest.mark.parametrize('sizes', [(2, 1, 2, 1), (1, 1, 2, 2)], ids=['tensor', 'sequence'])
def test_a_mesh_changes_nothing(sizes):
  """Rows over two axes, heads over two; dropout counts rows and heads of the whole operation."""
  case = cases.BY_NAME['all']._replace(rows=4, heads=4)
  built = cases.build(case)
  run = lambda values: sharded.sharded(attend)(cases.operands(built, values))
  alone = cases.with_gradients(built, run, built.values)
  axes = ('data', 'fsdp', 'tensor', 'sequence')
  types = (jax.sharding.AxisType.Auto,) * 4
  mesh = jax.make_mesh(sizes, axes, types, devices=jax.devices()[:4])
  with jax.set_mesh(mesh):
    spread = cases.with_gradients(built, run, built.values)
  for name, x in alone.items():
    np.testing.assert_allclose(spread[name], x, atol=2e-6 * abs(x).max(), err_msg=name)


COMPILE = """
import sys
import jax
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding
import attention_cases as cases
from bertjax.kernels.relative_attention.tpu import forward as tpu_forward
device = topologies.get_topology_desc(platform='tpu', topology_name=sys.argv[1]).devices[0]
for name in sys.argv[2:]:
  built = cases.build(cases.BY_NAME[name])
  def attend(values):
    return tpu_forward.attend(cases.operands(built, values), kind=device.device_kind).sum()
  like = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=SingleDeviceSharding(device))
  program = jax.jit(jax.value_and_grad(attend)).lower(jax.tree.map(like, built.values)).compile()
  assert program.as_text().count('custom_call_target="tpu_custom_call"') == 2
  print(name, device.device_kind)
"""
KINDS = {
  'TPU v5 lite': ('v5e:2x2', 'v5litepod-4'),
  'TPU v5': ('v5p:2x2x1', 'v5p-8'),
  'TPU v6 lite': ('v6e:2x2', 'v6e-4'),
  'TPU v4': ('v4:2x2x1', 'v4-8'),
}


@pytest.mark.skipif(not importlib.util.find_spec('libtpu'), reason='needs libtpu, which compiles')
@pytest.mark.parametrize(
  'kind', ['TPU v5 lite', *(pytest.param(k, marks=pytest.mark.full) for k in (*KINDS,)[1:])]
)
def test_compiles_for_tpu(kind):
  """Real Mosaic code, forward and backward, by libtpu without a TPU; a process for each kind."""
  topology, accelerator = KINDS[kind]
  names = ['all_bfloat16', 'transformer_xl_head41', 'deberta_and_more']
  environment = dict(
    os.environ, PYTHONPATH=os.pathsep.join(sys.path), TPU_ACCELERATOR_TYPE=accelerator,
    TPU_SKIP_MDS_QUERY='1', TPU_WORKER_HOSTNAMES='localhost', ALLOW_MULTIPLE_LIBTPU_LOAD='1',
    TPU_STDERR_LOG_LEVEL='3', JAX_ENABLE_COMPILATION_CACHE='false',  # what it keeps none can read
  )  # fmt: skip
  done = subprocess.run(
    [sys.executable, '-c', COMPILE, topology, *names],
    env=environment, capture_output=True, text=True, check=False,
  )  # fmt: skip
  assert done.stdout.splitlines() == [f'{name} {kind}' for name in names], done.stderr[-2000:]


def test_named_it_refuses_with_the_reason():
  q, keys = jnp.zeros((1, 8, 1, 300)), 2**15
  example = jnp.ones((1, 8), jnp.int32)
  said = "heads of up to 256, got 300; impl='xla' takes any"
  with target.compiled_for('TPU v5 lite'), pytest.raises(NotImplementedError, match=said):
    relative_attention(q, q, q, Mask(example, example), impl='tpu')
  q, k = jnp.zeros((1, 8, 1, 64)), jnp.zeros((1, keys, 1, 64))
  mask = Mask(example, jnp.ones((1, keys), jnp.int32))
  relative = Relative(r_RNH=jnp.zeros((keys + 8, 1, 64)), far=keys - 1)
  said = "fast memory; 32768 keys need .* impl='xla' takes"
  with target.compiled_for('TPU v5 lite'), pytest.raises(NotImplementedError, match=said):
    relative_attention(q, k, k, mask, relative, impl='tpu')
