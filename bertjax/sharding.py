"""Mesh from the config, and specs from one table of (logical axis, mesh axes) pairs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from bertjax.errors import UserError, amount
from bertjax.field_types import MESH_AXES
from bertjax.machine import malloc
from bertjax.types import Batch

Rules = Sequence[tuple[str, Any]]  # (logical axis, mesh axis or axes or None)

REPLICAS = 'data'  # its devices hold the same parameters


def typed_mesh(text: str) -> dict[str, int]:
  """Axis -> devices along it, of a mesh as it is typed: data,fsdp,tensor as in 1,4,2. Raises
  UserError: not three numbers."""
  try:
    data, fsdp, tensor = map(int, text.split(','))
  except ValueError:
    raise UserError(f'--mesh: expected data,fsdp,tensor as in 1,4,2, got {text!r}') from None
  return dict(data=data, fsdp=fsdp, tensor=tensor)


def mesh_sizes(config_mesh, devices: int) -> dict[str, int]:
  """Returns axis -> devices along it, of a `config_mesh` as of `make_mesh`. Raises UserError: sizes
  whose product is not the number of devices."""
  sizes = {axis: int(config_mesh.get(axis, 1)) for axis in MESH_AXES}
  given = list(sizes.values())
  if given.count(-1) > 1:
    raise UserError(f'at most one mesh axis may be -1, got {sizes}')
  known = int(np.prod([s for s in given if s != -1]))
  if known <= 0 or devices % known or (-1 not in given and known != devices):
    raise UserError(
      f'mesh {sizes} does not fit {amount(devices, "devices")}: '
      f'the product must be {devices}; leave one axis at -1'
    )
  return {axis: devices // known if s == -1 else s for axis, s in sizes.items()}


def make_mesh(config_mesh, devices: Sequence[Any] | None = None) -> Mesh:
  """Arranges the devices, all by default, along MESH_AXES; one axis may be -1, "the rest", and one
  that `config.mesh` does not name has size 1. Axis types are Auto: Linen asserts on Explicit ones,
  which `jax.make_mesh` makes by default. Of several `slices`, which a slower network connects, each
  has whole groups of the axis data, so that nothing but the sum of the gradients crosses it; where
  devices do not say their slice, it is their process. Raises UserError: sizes whose product is not
  the number of devices, or slices that do not divide data."""
  devices = jax.devices() if devices is None else devices
  sizes = list(mesh_sizes(config_mesh, len(devices)).values())
  types = (AxisType.Auto,) * len(MESH_AXES)
  slices = int(config_mesh.get('slices', 1))
  split: Any = dict(allow_split_physical_axes=True)  # fsdp may be 2 of a side of 4 chips
  if slices == 1:
    array = mesh_utils.create_device_mesh(sizes, devices, **split)
    return Mesh(array, MESH_AXES, axis_types=types)
  if slices < 1 or sizes[0] % slices:
    raise UserError(
      f'config.mesh.slices={slices} must divide config.mesh.data, which is {sizes[0]} here'
    )
  whole, across = [sizes[0] // slices, *sizes[1:]], [slices, *[1] * (len(sizes) - 1)]
  try:
    array = mesh_utils.create_hybrid_device_mesh(
      whole, across, devices, process_is_granule=not hasattr(devices[0], 'slice_index'), **split
    )
  except ValueError as error:
    raise UserError(f'config.mesh.slices={slices} does not fit these devices: {error}') from error
  return Mesh(array, MESH_AXES, axis_types=types)


def as_rules(config_rules) -> list[tuple[str, Any]]:
  """Returns the config's table as the list of pairs that flax.linen takes."""
  return [
    (name, tuple(axes) if isinstance(axes, list | tuple) else axes) for name, axes in config_rules
  ]


def logical_axes(boxed: Any) -> Any:
  """Returns the logical axis names of every leaf of a tree of flax.linen partitioning boxes, as
  tuples; an axis of a leaf without a box, as Flax's own modules make them, is None: nothing divides
  it."""
  is_box = lambda x: isinstance(x, nn.LogicallyPartitioned)
  names = lambda x: tuple(x.names) if is_box(x) else (None,) * x.ndim
  return jax.tree.map(names, boxed, is_leaf=is_box)


def leaf_path(path: tuple[Any, ...]) -> str:
  """Returns a key path as 'a/b/c'."""
  return jax.tree_util.keystr(path, simple=True, separator='/')


def param_specs(shapes: Any, axes: Any, rules: Rules, mesh: Mesh) -> Any:
  """PartitionSpecs for a tree of shapes. Raises UserError: a logical axis without a rule, two axes
  of one leaf on the same mesh axis, or a size that the mesh does not divide; the leaf is named."""
  table: dict[str | None, Any] = {None: None, **dict(rules)}

  def spec(path, shape, names) -> PartitionSpec:
    leaf, used, entries = leaf_path(path), {}, []
    for name, size in zip(names, shape.shape, strict=True):
      if name not in table:
        raise UserError(
          f'{leaf}: no sharding rule for axis {name!r}; config.sharding_rules has '
          f'{sorted(dict(rules))}'
        )
      axes = table[name] or ()
      axes = (axes,) if isinstance(axes, str) else tuple(axes)
      axes = tuple(a for a in axes if mesh.shape[a] > 1)
      for axis in axes:
        if axis in used:
          raise UserError(
            f'{leaf} {names}: the sharding rules put both {used[axis]!r} and {name!r} on mesh axis '
            f'{axis!r}; give one of them another axis or None in config.sharding_rules'
          )
        used[axis] = name
      ways = int(np.prod([mesh.shape[a] for a in axes]))
      if size % ways:
        raise UserError(
          f'{leaf}: axis {name!r} of size {size} is not divisible by {ways} '
          f'(mesh axes {axes}); change config.mesh, the model size or config.sharding_rules'
        )
      entries.append(axes[0] if len(axes) == 1 else axes or None)
    return PartitionSpec(*entries)

  return jax.tree_util.tree_map_with_path(spec, shapes, axes)


def abstract(boxed: Any, rules: Rules, mesh: Mesh) -> Any:
  """Returns a tree of partitioning boxes of shapes as ShapeDtypeStructs with shardings; raises as
  `param_specs`."""
  shapes = nn.meta.unbox(boxed)
  return placed(shapes, param_specs(shapes, logical_axes(boxed), rules, mesh), mesh)


def batch_spec() -> PartitionSpec:
  """Rows over data and fsdp, in every batch and every carry."""
  return PartitionSpec(('data', 'fsdp'))


def replicas() -> int:
  """Returns the number of devices of the current mesh (`jax.set_mesh`) that hold the same
  parameters and differ only in their rows, so they need each other only to exchange gradients."""
  mesh = jax.sharding.get_abstract_mesh()
  return 1 if mesh.empty else mesh.shape[REPLICAS]


def by_replica(function: Callable[[Any, Any], tuple[Any, Any]]) -> Callable:
  """Returns a function of (what all replicas hold, rows) -> (what all will hold, rows), such that
  each replica runs it on its own rows. What all will hold must have been summed over REPLICAS; the
  other axes of the mesh stay XLA's."""
  mesh, rules = jax.sharding.get_abstract_mesh(), nn.get_logical_axis_rules()
  # A kernel wants no axis to be XLA's, so those of one device are taken along.
  taken = {REPLICAS, *(axis for axis, size in mesh.shape.items() if size == 1)}

  def left(axes: Any) -> Any:
    axes = (axes,) if isinstance(axes, str) else axes or ()
    return tuple(axis for axis in axes if axis not in taken) or None

  def run(whole: Any, rows: Any) -> tuple[Any, Any]:
    open_rules = [(name, left(axes)) for name, axes in rules]
    with nn.logical_axis_rules(open_rules if taken != set(mesh.shape) else []):
      return function(whole, rows)

  specs = (PartitionSpec(), PartitionSpec(REPLICAS))
  return jax.shard_map(run, in_specs=specs, out_specs=specs, axis_names=taken, check_vma=False)


def placed(shapes: Any, specs: Any, mesh: Mesh) -> Any:
  """Returns a tree of shapes as ShapeDtypeStructs that lie on the mesh by a tree of
  PartitionSpecs."""
  at = lambda x, spec: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))
  return jax.tree.map(at, shapes, specs)


def check_batch(batch_size: int, microbatches: int, sizes: Mapping[str, int], hosts: int) -> None:
  """Refuses a batch that devices, of a mesh of these sizes, microbatches or hosts do not divide."""
  ways = sizes['data'] * sizes['fsdp']
  if batch_size % (ways * microbatches) or batch_size % hosts:
    raise UserError(
      f'config.batch_size={batch_size} must be a multiple of data x fsdp x microbatches = '
      f'{sizes["data"]} x {sizes["fsdp"]} x {microbatches} = {ways * microbatches} '
      f'and of {hosts} hosts'
    )


def put_batch(batch: Batch, mesh: Mesh) -> dict[str, jax.Array]:
  """Returns a host's rows of the global batch as global arrays; its rows are contiguous."""
  sharding = NamedSharding(mesh, batch_spec())
  return {
    k: jax.make_array_from_process_local_data(sharding, np.asarray(v)) for k, v in batch.items()
  }


def put_whole(array: Any, sharding: Any) -> jax.Array:
  """Returns an array that every process has whole, as a global one of that sharding.
  `jax.device_put` has the processes compare theirs, many at once, which their network on CPUs mixes
  up."""
  array = np.asarray(array)
  return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


class Devices(NamedTuple):
  """The devices of a run and what lies where on them."""

  mesh: Mesh
  rules: Rules

  @property
  def ways(self) -> int:
    """A batch must have a multiple of so many rows, that devices and hosts get equal shares."""
    return int(np.lcm(self.mesh.shape['data'] * self.mesh.shape['fsdp'], jax.process_count()))

  def compile(self, function: Callable, arguments: Sequence[Any], **options: Any) -> Any:
    """Returns the function for these arguments or their shapes; options are jax.jit's."""
    jitted = jax.jit(function, **options)
    with jax.set_mesh(self.mesh), nn.logical_axis_rules(self.rules):
      compiled = jitted.lower(*arguments).compile()
    if said := compiled.memory_analysis():
      malloc.keep_pages(said.temp_size_in_bytes)
    return compiled

  def put_global(self, tree: Any) -> Any:
    """Returns a tree of arrays of all rows, B first, that every host has, as global ones."""
    sharding = NamedSharding(self.mesh, batch_spec())
    return jax.tree.map(lambda x: put_whole(x, sharding), tree)
