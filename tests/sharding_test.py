"""Meshes and specs: what is refused, and by what name."""

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from mutation import mutation

from bertjax import sharding

RULES = [('embed', 'fsdp'), ('ffn', 'tensor'), ('norm', None), ('both', ('fsdp', 'tensor'))]


def mesh(data=-1, fsdp=1, tensor=1):
  return sharding.make_mesh(dict(data=data, fsdp=fsdp, tensor=tensor))


def specs(shape, names, m):
  return sharding.param_specs(
    dict(w=jax.ShapeDtypeStruct(shape, np.float32)), dict(w=names), RULES, m
  )['w']


def test_minus_one_takes_the_devices_that_are_left():
  assert dict(mesh(fsdp=2, tensor=2).shape) == dict(data=2, fsdp=2, tensor=2)


@pytest.mark.parametrize(
  'sizes', [dict(data=3), dict(data=2), dict(data=-1, fsdp=-1), dict(fsdp=5)]
)
def test_a_mesh_that_does_not_fit_is_refused(sizes):
  with pytest.raises(ValueError, match='mesh'):
    mesh(**sizes)


def test_logical_axes_become_mesh_axes():
  m = mesh(fsdp=2, tensor=4)
  assert specs((4, 8), ('embed', 'ffn'), m) == P('fsdp', 'tensor')
  assert specs((8, 8), ('norm', 'both'), m) == P(None, ('fsdp', 'tensor'))


def test_axes_of_size_one_are_left_out():
  assert specs((3, 5), ('embed', 'ffn'), mesh()) == P(None, None)


@mutation(
  'sharding: colliding rules pass',
  'bertjax/sharding.py',
  '        if axis in used:',
  '        if False:',
)
def test_colliding_rules_are_refused_by_name():
  with pytest.raises(ValueError, match="w .*both 'embed' and 'both' on mesh axis 'fsdp'"):
    specs((8, 8), ('embed', 'both'), mesh(fsdp=2, tensor=4))


def test_a_size_that_the_mesh_does_not_divide_is_refused():
  with pytest.raises(ValueError, match="w: axis 'ffn' of size 6 is not divisible by 4"):
    specs((4, 6), ('embed', 'ffn'), mesh(fsdp=2, tensor=4))


def test_an_axis_without_rule_is_refused():
  with pytest.raises(ValueError, match="no sharding rule for axis 'heads'"):
    specs((4,), ('heads',), mesh())


@pytest.mark.parametrize('size, micro, hosts', [(12, 1, 1), (8, 2, 1), (24, 1, 5)])
def test_a_batch_that_does_not_divide_is_refused(size, micro, hosts):
  with pytest.raises(ValueError, match=f'batch_size={size} must be a multiple'):
    sharding.check_batch(size, micro, mesh(), hosts)


def test_a_batch_lands_on_the_devices_in_row_order():
  batch = sharding.put_batch(dict(x=np.arange(16).reshape(16, 1)), mesh(data=4, fsdp=2))
  rows = [
    int(s.data[0, 0]) for s in sorted(batch['x'].addressable_shards, key=lambda s: s.device.id)
  ]
  assert rows == list(range(0, 16, 2))
