"""Look-up by index in arrays that a mesh divides along more than one axis."""

import functools
from collections.abc import Callable
from typing import Any

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


def rows(table: Array, id_n: Array) -> Array:
  """Returns table[id_n] of a table [V, E] or [V], the last row of ids beyond it. Its columns stay
  divided as the table's are."""
  id_n = jnp.minimum(id_n, len(table) - 1)

  def find(own: Array, at_n: Array) -> Array:
    return jax.lax.psum(own.at[at_n].get(mode='fill', fill_value=0), WORDS)

  divided, specs = _division(table)
  if not divided:
    return table[id_n]
  return _at_own(find, (specs, PartitionSpec()), PartitionSpec(None, *specs[1:]))(table, id_n)


def put_rows(table: Array, id_n: Array, row_n: Array) -> Array:
  """Returns the table, [V, E] or [V], with `row_n` at `id_n`, which differ from each other but for
  those beyond it: they are left out."""
  put = lambda own, at_n, row_n: own.at[at_n].set(row_n, mode='drop')
  divided, specs = _division(table)
  if not divided:
    return put(table, id_n, row_n)
  given = specs, PartitionSpec(), PartitionSpec(None, *specs[1:])
  return _at_own(put, given, specs)(table, id_n, row_n)


def _division(table: Array) -> tuple[bool, PartitionSpec]:
  """Returns whether a mesh divides a table, and how."""
  axes = (WORDS, COLUMNS)[: table.ndim]
  return mesh.ways(axes) > 1, PartitionSpec(*(mesh.left([axis]) for axis in axes))


def _at_own(function: Callable[..., Array], given: Any, found: Any) -> Callable[..., Array]:
  """Returns a function of a table, ids and more, which runs on each device's share of the table,
  with the places of the ids in it: beyond its end where another device has them."""

  def of_device(own: Array, id_n: Array, *more: Array) -> Array:
    at_n = id_n - jax.lax.axis_index(WORDS) * len(own)
    here_n = (at_n >= 0) & (at_n < len(own))
    return function(own, jnp.where(here_n, at_n, len(own)), *more)

  axes = set(mesh.sizes())
  return jax.shard_map(of_device, in_specs=given, out_specs=found, axis_names=axes, check_vma=False)


@functools.partial(jax.checkpoint, prevent_cse=False, static_argnums=2)
def one_of(x: Array, index: Array, axis: int) -> Array:
  """Returns x at one index of an axis, for each place of the others; index has x's shape without
  the axis, or one that broadcasts to it. Compares all indices with it, which XLA divides along any
  axes, where it cannot divide a gather. The backward pass compares again: what was found is
  large."""
  at = jax.lax.broadcasted_iota(jnp.int32, x.shape, axis % x.ndim)
  return jnp.sum(jnp.where(at == jnp.expand_dims(index, axis), x, 0), axis)
