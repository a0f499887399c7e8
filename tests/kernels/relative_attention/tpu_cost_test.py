"""The kernels' cost estimates against their own grids, walked step by step."""

import itertools
import math

import attention_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.core import jaxpr_as_fun
from jax._src.state import discharge  # an index map reads its scalars through references
from mutation import mutation

from bertjax.kernels.relative_attention import arg_specs
from bertjax.kernels.relative_attention.tpu import forward as tpu_forward

mutation('shape.groups * bytes_of(q_info)', 'bytes_of(q_info)')


def pallas_calls(jaxpr):
  for equation in jaxpr.eqns:
    if equation.primitive.name == 'pallas_call':
      yield equation
    for value in equation.params.values():
      for inner in jax.tree.leaves(value, is_leaf=lambda x: hasattr(x, 'jaxpr')):
        if hasattr(inner, 'jaxpr') or hasattr(inner, 'eqns'):
          yield from pallas_calls(getattr(inner, 'jaxpr', inner))


def moved(equation, scalars) -> int:
  """Bytes that the grid moves: a block whenever its index is not that of the step before."""
  mapping = equation.params['grid_mapping']
  steps = list(itertools.product(*(range(n) for n in mapping.grid)))
  total = sum(x.size * x.dtype.itemsize for x in scalars)
  for block in mapping.block_mappings:
    pure = jaxpr_as_fun(discharge.discharge_state(block.index_map_jaxpr))
    rank = len(block.block_shape)
    at = jax.vmap(lambda step, pure=pure, rank=rank: pure(*step, *scalars)[:rank])
    places = np.stack(at([jnp.asarray(axis, jnp.int32) for axis in zip(*steps, strict=True)]), 1)
    fetches = 1 + (places[1:] != places[:-1]).any(1).sum()
    sizes = [getattr(d, 'block_size', d) for d in block.block_shape]
    total += int(fetches) * math.prod(sizes) * block.array_aval.dtype.itemsize
  return total


@pytest.mark.parametrize('table, bias', [('', False), ('mirror', False), ('both', True)])
def test_estimates_are_what_the_grid_moves(table, bias):
  shape = arg_specs.Shape(2, 256, 128, 4, 64, table=table, bias=bias, segment=table == 'mirror')
  x = jax.jit(lambda: arg_specs.operands(shape, jax.random.key(0)))()

  def total(q):
    with cases.small_tiles(128):
      y = tpu_forward.attend(x._replace(q_BTNH=q), kind='TPU v5 lite')
    return y.astype(jnp.float32).sum()

  calls = list(pallas_calls(jax.make_jaxpr(jax.grad(total))(x.q_BTNH).jaxpr))
  assert len(calls) == 2
  q_blocks, k_blocks, rows = 2, 3, 2
  visits = np.tile(np.arange(k_blocks, dtype=np.int32), rows * q_blocks)
  scalars = [
    jnp.full(rows * q_blocks, k_blocks, jnp.int32), jnp.asarray(visits),
    jnp.asarray(np.stack([np.zeros(rows)] * 2 + [np.arange(rows) % 2, np.zeros(rows)]), jnp.int32),
  ]  # fmt: skip
  for equation in calls:
    assert equation.params['cost_estimate'].bytes_accessed == moved(equation, scalars)
