"""Axes of the current mesh (`jax.set_mesh`) that XLA divides by itself.

Within a `shard_map` the axes that it takes do not count: an array there is one device's share.
"""

import math
from collections.abc import Iterable

import jax

ROWS = ('data', 'fsdp')  # axes that divide rows


def sizes() -> dict[str, int]:
  """Axis -> devices along it, of the axes that no `shard_map` around this place has taken."""
  mesh = jax.sharding.get_abstract_mesh()
  return {axis: size for axis, size in mesh.shape.items() if axis not in mesh.manual_axes}


def left(axes: Iterable[str]) -> tuple[str, ...]:
  """Returns those of these axes that no `shard_map` around this place has taken; () where there is
  no mesh."""
  found = sizes()
  return tuple(axis for axis in axes if axis in found)


def ways(axes: Iterable[str]) -> int:
  """Returns the number of devices along these axes, without those of a `shard_map`; 1: no mesh."""
  found = sizes()
  return math.prod(found.get(axis, 1) for axis in axes)


def over_rows(x: jax.Array) -> jax.Array:
  """Sums over the devices whose `shard_map` gave each its own rows of the batch; of others, whose
  arrays have all rows, as it is."""
  taken = jax.sharding.get_abstract_mesh().manual_axes
  axes = tuple(axis for axis in ROWS if axis in taken)
  return jax.lax.psum(x, axes) if axes else x
