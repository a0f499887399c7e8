"""Attention on a mesh: XLA cannot split a kernel, so every device runs it on its rows and heads."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import PartitionSpec

from bertjax.kernels import mesh

Array = jax.Array

HEADS = ('tensor', 'sequence')  # axes of the mesh that divide heads


def sharded(attend: Callable[..., Array], single: bool = False) -> Callable[..., Array]:
  """An implementation that runs on each device's share of the current mesh (`jax.set_mesh`).

  Args:
    attend: the implementation, for one device.
    single: whether axes of one device are taken over too. A library's own rule for dividing its
      kernel is asked where any axis is left to XLA, as some are within a `shard_map` over others.

  Raises (when called):
    ValueError: the mesh does not divide the rows or the heads.
  """

  def over_mesh(q_BTNH, k_BSNH, v_BSNH, mask, relative, dropout):
    sizes = mesh.sizes()
    if not sizes or (math.prod(sizes.values()) == 1 and not single):
      return attend(q_BTNH, k_BSNH, v_BSNH, mask, relative, dropout)
    rows = mesh.left(mesh.ROWS)
    across = tuple(a for a in HEADS if sizes.get(a, 1) > 1)
    ways, heads = mesh.ways(rows), mesh.ways(across)
    if q_BTNH.shape[0] % ways or q_BTNH.shape[2] % heads:
      raise ValueError(
        f'attention: expected rows and heads that the mesh {sizes} divides ({ways} and '
        f'{heads} ways), got {q_BTNH.shape[0]} rows and {q_BTNH.shape[2]} heads'
      )
    operands = dict(
      q_BTNH=q_BTNH, k_BSNH=k_BSNH, v_BSNH=v_BSNH, mask=mask, relative=relative, dropout=dropout
    )

    def part(x: dict[str, Any]) -> Array:
      dropout = x['dropout']
      if dropout is not None and heads > 1:
        first = jax.lax.axis_index(across) * x['q_BTNH'].shape[2]
        dropout = dataclasses.replace(dropout, head=dropout.head + first)
      return attend(x['q_BTNH'], x['k_BSNH'], x['v_BSNH'], x['mask'], x['relative'], dropout)

    names = dict(B=rows, N=across or None)
    specs = jax.tree_util.tree_map_with_path(lambda path, _: _spec(path[-1], names), operands)
    out = PartitionSpec(rows, None, names['N'], None)
    # A kernel's results do not say over which axes they vary.
    return jax.shard_map(
      part, in_specs=(specs,), out_specs=out, axis_names=set(sizes), check_vma=False
    )(operands)

  return over_mesh


def _spec(key: Any, names: dict[str, Any]) -> PartitionSpec:
  """Returns the split of an operand, by the axis letters that end its name: q_BTNH, u_NH, site."""
  name = getattr(key, 'name', None) or key.key
  tail = name.rpartition('_')[2]
  return PartitionSpec(*(names.get(letter) for letter in tail if tail.isupper()))
