"""Attention on a mesh: XLA cannot split a kernel, so every device runs it on its rows and heads."""

import dataclasses
import math
from collections.abc import Callable

import jax
from jax.sharding import PartitionSpec

from bertjax.kernels import mesh
from bertjax.kernels.relative_attention.operands import Operands, axes_of
from bertjax.types import Array

HEADS = ('tensor', 'sequence')  # axes of the mesh that divide heads


def sharded(attend: Callable[..., Array], single: bool = False) -> Callable[..., Array]:
  """Returns an implementation that runs on each device's share of the current mesh
  (`jax.set_mesh`); it raises ValueError where the mesh does not divide the rows or the heads.

  Args:
    attend: the implementation, for one device.
    single: axes of one device are taken over too. A library's own rule for dividing its kernel is
      asked where any axis is left to XLA, as some are within a `shard_map` over others.
  """

  def over_mesh(x: Operands) -> Array:
    sizes = mesh.sizes()
    if not sizes or (math.prod(sizes.values()) == 1 and not single):
      return attend(x)
    rows = mesh.left(mesh.ROWS)
    across = tuple(a for a in HEADS if sizes.get(a, 1) > 1)
    ways, heads = mesh.ways(rows), mesh.ways(across)
    if x.q_BTNH.shape[0] % ways or x.q_BTNH.shape[2] % heads:
      raise ValueError(
        f'attention: expected rows and heads that the mesh {sizes} divides ({ways} and '
        f'{heads} ways), got {x.q_BTNH.shape[0]} rows and {x.q_BTNH.shape[2]} heads'
      )

    def part(x: Operands) -> Array:
      if x.dropout is not None and heads > 1:
        first = jax.lax.axis_index(across) * x.q_BTNH.shape[2]
        x = x._replace(dropout=dataclasses.replace(x.dropout, head=x.dropout.head + first))
      return attend(x)

    names = dict(B=rows, N=across or None)
    split = lambda path, _: PartitionSpec(*(names.get(axis) for axis in axes_of(path)))
    specs = jax.tree_util.tree_map_with_path(split, x)
    out = PartitionSpec(rows, None, names['N'], None)
    # A kernel's results do not say over which axes they vary.
    return jax.shard_map(
      part, in_specs=(specs,), out_specs=out, axis_names=set(sizes), check_vma=False
    )(x)

  return over_mesh
