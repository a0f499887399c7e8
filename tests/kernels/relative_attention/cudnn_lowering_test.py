"""cuDNN's attention without a GPU: for CUDA the library's call lowers to cuDNN's own."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import without_gpu
from jax._src.cudnn import fused_attention_stablehlo  # tells which cuDNN is installed
from jax.sharding import AbstractMesh, AxisType, PartitionSpec
from mutation import mutation

from bertjax.kernels import relative_attention as ra
from bertjax.kernels.relative_attention import arg_specs
from bertjax.kernels.relative_attention.gpu import cudnn

BOTH = ['fmhaSoftmax', 'fmhaSoftmaxBackward']


@pytest.fixture(autouse=True)
def with_cudnn(monkeypatch):
  """As if cuDNN were installed, in a version of today's."""
  monkeypatch.setattr(fused_attention_stablehlo, 'check_cudnn_version', lambda: 91000)


def full(rows: int, **said) -> ra.Mask:
  ones_BT = np.ones((rows, 210), np.int32)
  return ra.Mask(ones_BT, ones_BT, whole=True, **said)


def lowered(mask: ra.Mask, size: int = 64, heads: int = 12, mesh=None, within=False) -> str:
  """Gradients lowered for CUDA, on a mesh or `within` a shard_map over its axis `data`."""
  (rows, columns), keys = mask.example_q_BT.shape, mask.example_k_BS.shape[1]
  shape = lambda length: jax.ShapeDtypeStruct((rows, length, heads, size), jnp.bfloat16)
  sizes = mesh or {}

  def total(q, k, v, mask):
    return jnp.sum(ra.relative_attention(q, k, v, mask, impl='cudnn').astype(jnp.float32))

  def slopes(q, k, v, mask):
    return jax.grad(total, (0, 1, 2))(q, k, v, mask)

  def parts(*operands):
    over = PartitionSpec('data')
    return jax.shard_map(
      slopes, in_specs=over, out_specs=over, axis_names={'data'}, check_vma=False
    )(*operands)

  abstract = AbstractMesh(
    tuple(sizes.values()), tuple(sizes), (AxisType.Auto,) * len(sizes),
    abstract_device=without_gpu.DEVICE,
  )  # fmt: skip
  operands = shape(columns), shape(keys), shape(keys), mask
  return without_gpu.lowered(parts if within else slopes, *operands, mesh=abstract)


def calls(text: str) -> list[tuple[str, str, dict]]:
  """(name, shape of q, what cuDNN is told) of each of cuDNN's calls."""
  found = re.findall(r'@__cudnn\$(\w+)\(.*?backend_config = "(.*?[^\\])".*?: \(tensor<(\w+)>', text)
  said = [json.loads(re.sub(r'\\22', '"', config)) for _, config, _ in found]
  told = [each['cudnn_fmha_backend_config'] for each in said]
  return [(name, q, config) for (name, _, q), config in zip(found, told, strict=True)]


@pytest.mark.parametrize('said', [{}, dict(causal=True), dict(causal=True, window=5)])
def test_lowers_to_cudnn_and_holds_no_scores(said):
  text = lowered(full(2, **said))
  found = calls(text)
  assert [name for name, _, _ in found] == BOTH and 'triton' not in text
  for _, q, config in found:
    assert q == '2x210x12x64xbf16'
    assert config['mask_type'] == ('PADDING_CAUSAL' if said.get('causal') else 'PADDING')
    assert config['sliding_window_length'] == said.get('window', 0)
    assert (config['fmha_scale'], config['dropout_rate']) == (0.125, 0.0)
  shapes = {tuple(map(int, dims.split('x'))) for dims in re.findall(r'tensor<([\dx]+)x\w', text)}
  assert not [shape for shape in shapes if shape.count(210) > 1]


@mutation('single=impl not in KERNELS', 'single=False', case='True-sizes2')
@pytest.mark.parametrize(
  'within, sizes',
  [
    (False, dict(data=4, tensor=2)),
    (True, dict(data=4, tensor=2)),
    (True, dict(data=4, fsdp=1, tensor=1)),
  ],
)
def test_each_device_of_a_mesh_calls_it_for_its_share(within, sizes):
  """Alone, and within a `shard_map` over `data`, as a step is that reduces its gradients once."""
  found = calls(lowered(full(8), mesh=sizes, within=within))
  heads = 12 // sizes.get('tensor', 1)
  assert [(name, q) for name, q, _ in found] == [(name, f'2x210x{heads}x64xbf16') for name in BOTH]


def test_published_shapes_that_it_takes_lower():
  taken = []
  for name, shape in arg_specs.SHAPES.items():
    x = jax.eval_shape(lambda shape=shape: arg_specs.operands(shape, jax.random.key(0)))
    assert x.mask.whole
    if cudnn.refusal(x) is None:
      assert [call for call, *_ in calls(lowered(x.mask, shape.size, shape.heads))] == BOTH
      taken.append(name)
  assert taken == ['bert_base_eval', 'albert_xxlarge']
