"""Meshes and specs: what is refused, and by what name."""

import json
import os
import pathlib
from typing import Any

import flax.linen as nn
import jax
import numpy as np
import pytest
import systems
from jax.sharding import PartitionSpec as P
from mutation import mutation
from tiers import in_tiers

from bertjax import registry, sharding
from bertjax.tools.bench.parts import own_step, synthetic

RULES = [('embed', 'fsdp'), ('ffn', 'tensor'), ('norm', None), ('both', ('fsdp', 'tensor'))]


def mesh(data=-1, fsdp=1, tensor=1):
  return sharding.make_mesh(dict(data=data, fsdp=fsdp, tensor=tensor))


def specs(shape, names, m):
  return sharding.param_specs(
    dict(w=jax.ShapeDtypeStruct(shape, np.float32)), dict(w=names), RULES, m
  )['w']


def test_minus_one_takes_the_devices_that_are_left():
  assert dict(mesh(fsdp=2, tensor=2).shape) == dict(data=2, fsdp=2, tensor=2, sequence=1)


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


@mutation('        if axis in used:', '        if False:')
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
    sharding.check_batch(size, micro, mesh().shape, hosts)


def test_a_batch_lands_on_the_devices_in_row_order():
  batch = sharding.put_batch(dict(x=np.arange(16).reshape(16, 1)), mesh(data=4, fsdp=2))
  rows = [
    int(s.data[0, 0]) for s in sorted(batch['x'].addressable_shards, key=lambda s: s.device.id)
  ]
  assert rows == list(range(0, 16, 2))


class Tpu:
  """As much of a device as a mesh asks for."""

  process_index, core_on_chip = 0, 0

  def __init__(self, id: int, slice_index: int = 0, platform: str = 'cpu', coords: Any = None):
    self.id, self.slice_index, self.coords = id, slice_index, coords
    self.platform = self.device_kind = platform


@mutation('allow_split_physical_axes=True', 'allow_split_physical_axes=False')
def test_an_axis_may_be_a_part_of_a_side_of_a_pod():
  places = [*np.ndindex(4, 4, 4)]
  pod = [Tpu(number, platform='tpu', coords=coords) for number, coords in enumerate(places)]
  m = sharding.make_mesh(dict(data=-1, fsdp=2), pod)
  assert dict(m.shape) == dict(data=32, fsdp=2, tensor=1, sequence=1)
  near = [np.abs(np.subtract(a.coords, b.coords)).sum() for a, b in m.devices.reshape(32, 2)]
  assert near == [1] * 32


@mutation('[sizes[0] // slices, *sizes[1:]]', '[sizes[0] // slices, *sizes[1:]][::-1]')
def test_a_slice_has_whole_groups_of_the_axis_data():
  """Devices that say which slice they are of, as TPUs do."""
  devices = [Tpu(number, slice_index=number // 4) for number in range(8)]
  m = sharding.make_mesh(dict(data=4, fsdp=2, slices=2), devices)
  assert dict(m.shape) == dict(data=4, fsdp=2, tensor=1, sequence=1)
  of_slice = np.vectorize(lambda d: d.slice_index)(m.devices)[:, :, 0, 0]
  assert [set(row) for row in of_slice] == [{0}, {0}, {1}, {1}]


@pytest.mark.parametrize('sizes', [dict(data=3, fsdp=2), dict(data=1, fsdp=8)])
def test_slices_that_do_not_divide_data_are_refused(sizes):
  devices = jax.devices()[: sizes['data'] * sizes['fsdp']]
  with pytest.raises(ValueError, match='config.mesh.slices=2 must divide'):
    sharding.make_mesh(sizes | dict(slices=2), devices)


# To make it anew: python -m pytest tests/sharding_test.py -k golden with BERTJAX_WRITE_GOLDENS=1.
GOLDEN = pathlib.Path(__file__).parent / 'goldens' / 'sharding.json'


# Whose tables are those of BERT, BART, RoBERTa and ModernBERT: in the full tier.
ALIKE = (
  'bert_lamb', 'bigbird', 'diffusion', 'ernie', 'longformer', 'mass', 'mbert', 'quickstart',
  'speedrun', 'xlm_r',
)  # fmt: skip


@pytest.mark.parametrize('name', in_tiers(systems.NAMES, ALIKE))
@mutation("('heads', 'tensor')", "('heads', None)", case='bert')
def test_every_parameter_lies_where_the_golden_table_says(name):
  """On a mesh of 2 x 2 x 2; the table is read with the eyes before it changes."""
  config = systems.tiny(name)
  config = own_step.sized(config, 8, 64)
  objective = registry.find('bertjax.objectives', config.objective.name, 'it').OBJECTIVE
  batch = synthetic.synthetic_batch(config)
  boxed = jax.eval_shape(objective.make(config).init, jax.random.key(0), batch)['params']
  rules = sharding.as_rules(config.sharding_rules)
  m = mesh(data=2, fsdp=2, tensor=2)
  found = sharding.param_specs(nn.meta.unbox(boxed), sharding.logical_axes(boxed), rules, m)
  is_spec = lambda x: isinstance(x, P)
  leaves = jax.tree_util.tree_leaves_with_path(found, is_leaf=is_spec)
  table = {sharding.leaf_path(path): ' '.join(map(str, spec)) for path, spec in leaves}
  golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
  if os.environ.get('BERTJAX_WRITE_GOLDENS'):
    GOLDEN.write_text(json.dumps(golden | {name: table}, indent=1, sort_keys=True) + '\n')
  else:
    assert table == golden[name]
