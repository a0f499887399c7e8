"""Look-up by index in arrays that a mesh divides along more than one axis."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from bertjax.kernels import mesh
from bertjax.types import Array

WORDS, COLUMNS = 'tensor', 'fsdp'  # axes of the mesh that divide a table
PLACES = 'sequence'  # and one that divides the ids, besides the axes of rows


def look_up(table_VE: Array, id_BT: Array) -> Array:
  """table_VE[id_BT], [B, T, E].

  Where two of its columns, its words and the places are divided, XLA's partitioner (jaxlib 0.10.2)
  sends all vectors to all devices, and within a `shard_map` over `data` it ends the process
  (spmd_partitioner_util.cc: num_devices_per_group); jaxlib 0.11.2's does so for words and places
  too. There each device gathers the columns of its
  words, takes those ids that are among them, and the devices that have the other words add theirs;
  ids that the mesh does not divide evenly are looked up by all devices.
  """
  words, columns = PartitionSpec(mesh.left([WORDS]), mesh.left([COLUMNS])), mesh.ways([COLUMNS])
  ways = mesh.ways([WORDS]), columns
  divided = sum(n > 1 for n in (*ways, mesh.ways([PLACES])))
  if divided < 2 or np.mod(table_VE.shape, ways).any():
    return table_VE[id_BT]
  axes = mesh.ROWS, [PLACES]
  evenly = (count % mesh.ways(each) == 0 for count, each in zip(id_BT.shape, axes, strict=True))
  places = PartitionSpec(
    *(mesh.left(each) if even else None for each, even in zip(axes, evenly, strict=True))
  )

  def of_device(own_VE: Array, own_BT: Array) -> Array:
    words_VE = jax.lax.all_gather(own_VE, COLUMNS, axis=1, tiled=True)
    if ways[0] == 1:
      return words_VE[own_BT]
    at_BT = own_BT - jax.lax.axis_index(WORDS) * len(words_VE)
    here_BT = (at_BT >= 0) & (at_BT < len(words_VE))
    found_BTE = words_VE[jnp.where(here_BT, at_BT, 0)]
    return jax.lax.psum(jnp.where(here_BT[..., None], found_BTE, 0), WORDS)

  return jax.shard_map(
    of_device, in_specs=(words, places), out_specs=places, axis_names=set(mesh.sizes()),
    check_vma=False,
  )(table_VE, id_BT)  # fmt: skip


@functools.partial(jax.checkpoint, prevent_cse=False, static_argnums=2)
def one_of(x: Array, index: Array, axis: int) -> Array:
  """Returns x at one index of an axis, for each place of the others; index has x's shape without
  the axis, or one that broadcasts to it. Compares all indices with it, which XLA divides along any
  axes, where it cannot divide a gather. The backward pass compares again: what was found is
  large."""
  at = jax.lax.broadcasted_iota(jnp.int32, x.shape, axis % x.ndim)
  return jnp.sum(jnp.where(at == jnp.expand_dims(index, axis), x, 0), axis)
