"""Looking up on meshes: NumPy's indexing, whatever divides the table and the ids."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from mutation import mutation

from bertjax import sharding
from bertjax.kernels.look_up import look_up, one_of, put_rows, rows

WORDS, WIDTH, ROWS, COLUMNS = 24, 6, 8, 10


def case(rows=ROWS):
  draw = np.random.default_rng(0)
  table_VE = draw.normal(size=(WORDS, WIDTH)).astype(np.float32)
  return table_VE, draw.integers(WORDS, size=(rows, COLUMNS)).astype(np.int32)


def on_mesh(sizes, table_VE, id_BT, scale_BTE):
  """The vectors, and the gradient of the table of their product with a scale."""
  sizes = dict(data=1, fsdp=1, tensor=1, sequence=1) | sizes
  mesh = sharding.make_mesh(sizes, jax.devices()[: math.prod(sizes.values())])
  put = lambda x, *axes: jax.device_put(x, NamedSharding(mesh, PartitionSpec(*axes)))
  axes = (('data', 'fsdp'), 'sequence') if len(id_BT) == ROWS else ()
  operands = put(table_VE, 'tensor', 'fsdp'), put(id_BT, *axes), put(scale_BTE, *axes[:1])

  def loss(table_VE, id_BT, scale_BTE):
    found_BTE = look_up(table_VE, id_BT)
    return jnp.sum(found_BTE * scale_BTE), found_BTE

  with jax.set_mesh(mesh):
    (_, found_BTE), grad_VE = jax.jit(jax.value_and_grad(loss, has_aux=True))(*operands)
  return found_BTE, grad_VE


@mutation('jnp.where(here_BT[..., None], found_BTE, 0), WORDS', 'found_BTE, WORDS')
@mutation('jax.lax.axis_index(WORDS) * len(words_VE)', '0 * len(words_VE)')
@pytest.mark.parametrize(
  'sizes, rows',
  [
    (dict(data=2, fsdp=2, tensor=2), ROWS),
    (dict(data=2, fsdp=2, tensor=2), 1),
    (dict(data=2, fsdp=2, sequence=2), ROWS),
  ],
  ids=str,
)
def test_vectors_and_gradients_are_those_of_numpy(sizes, rows):
  table_VE, id_BT = case(rows)
  scale_BTE = np.random.default_rng(1).normal(size=(rows, COLUMNS, WIDTH)).astype(np.float32)
  found_BTE, grad_VE = on_mesh(sizes, table_VE, id_BT, scale_BTE)
  np.testing.assert_array_equal(found_BTE, table_VE[id_BT])
  expected_VE = np.zeros_like(table_VE)
  np.add.at(expected_VE, id_BT, scale_BTE)
  np.testing.assert_allclose(grad_VE, expected_VE, rtol=1e-5, atol=1e-6)


@mutation('here_n = (at_n >= 0) & (at_n < len(own))', 'here_n = at_n < len(own)', case='all')
@mutation('jax.lax.axis_index(WORDS) * len(own)', '0', case='all')
@pytest.mark.parametrize(
  'sizes', [{}, dict(fsdp=2), dict(data=2, fsdp=2, tensor=2)], ids=['one', 'columns', 'all']
)
def test_some_rows_are_taken_and_put_back_and_ids_beyond_the_table_change_nothing(sizes):
  table_VE, id_n = case()[0], np.array([0, 5, 11, 12, 23, WORDS, WORDS], np.int32)
  mesh = sharding.make_mesh(sizes, jax.devices()[: math.prod(sizes.values())])
  for table, axes in ((table_VE, ('tensor', 'fsdp')), (table_VE[:, 0], ('tensor',))):
    placed = jax.device_put(table, NamedSharding(mesh, PartitionSpec(*axes)))
    with jax.set_mesh(mesh):
      found = jax.jit(rows)(placed, id_n)
      put = jax.jit(put_rows)(placed, id_n, 2 * found)
    np.testing.assert_array_equal(found, table[np.minimum(id_n, WORDS - 1)])
    expected = table.copy()
    expected[id_n[:5]] *= 2
    np.testing.assert_array_equal(put, expected)


@mutation('return jnp.sum(jnp.where(', 'return jnp.max(jnp.where(')
@pytest.mark.parametrize('axis', [0, -1])
def test_one_of_is_what_indexing_takes(axis):
  draw = np.random.default_rng(0)
  x = draw.normal(size=(4, 5, 6)).astype(np.float32)
  index = draw.integers(x.shape[axis], size=np.delete(x.shape, axis))
  expected = np.take_along_axis(x, np.expand_dims(index, axis), axis).squeeze(axis)
  np.testing.assert_array_equal(one_of(jnp.array(x), jnp.array(index), axis), expected)
