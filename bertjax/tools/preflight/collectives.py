"""Traffic between chips of a compiled program: each collective with its axes, bytes and count."""

import math
import re
from collections import Counter
from typing import NamedTuple

import numpy as np

from bertjax.tools.preflight import traffic
from bertjax.tools.preflight.hlo import Computation, Instruction, Sized, arrays, parse

KINDS = ('all-reduce', 'all-gather', 'reduce-scatter', 'all-to-all', 'collective-permute')


class Collective(NamedTuple):
  """One kind of collective over some axes."""

  kind: str  # one of KINDS
  axes: tuple[str, ...]  # of the mesh, over which chips exchange
  ways: int  # chips that exchange
  dtype: str  # of what is sent
  count: int  # in a step
  bytes: int  # of the whole arrays, of all of them

  @property
  def sent_bytes(self) -> float:
    """Bytes that each chip sends on a ring: (n - 1) / n of the arrays, twice for an all-reduce."""
    if self.kind == 'collective-permute':
      return self.bytes
    rounds = 2 if self.kind == 'all-reduce' else 1
    return rounds * self.bytes * (self.ways - 1) / self.ways


def collectives(text: str, mesh: dict[str, int]) -> list[Collective]:
  """Returns the collectives of a program, the text of its HLO compiled for a mesh (axis -> size) in
  the order of its devices, the heaviest first."""
  computations, entry = parse(text)
  counts, sizes, shown = Counter(), Counter(), _shown(computations)
  for x, times in traffic.instructions(computations, entry):
    kind = shown.get(x.name, x.opcode.removesuffix('-start'))
    if kind not in KINDS:
      continue
    axes, ways = _axes(x, mesh)
    if ways == 1:
      continue
    dtypes = '+'.join(sorted({array.dtype for array in _arrays(x)})) or 'scalars'
    key = kind, axes, ways, dtypes
    counts[key] += times
    sizes[key] += times * _whole(x, ways)
  found = [
    Collective(kind, axes, ways, dtype, count, sizes[kind, axes, ways, dtype])
    for (kind, axes, ways, dtype), count in counts.items()
  ]
  return sorted(found, key=lambda c: -c.sent_bytes)


def _shown(computations: dict[str, Computation]) -> dict[str, str]:
  """Returns instruction -> kind where the opcode says another: libtpu writes a reduce-scatter as a
  fusion of an all-reduce and slices, and repeats a collective that runs beside computations in the
  fusions that it runs beside and in the one that waits for it; it counts where it starts."""
  found = {}
  for name, body in computations.items():
    starts = any('"AsyncCollectiveStart"' in x.rest for x in body.values())
    for x in body.values():
      if name.startswith('all-reduce-scatter') and x.opcode == 'all-reduce':
        found[x.name] = 'reduce-scatter'
      elif 'async_collective_fusion_config' in x.rest and not starts:
        found[x.name] = 'counted where it starts'
  return found


def _arrays(x: Instruction) -> list[Sized]:
  """Returns the arrays of an instruction's result. What starts has its operands first, and perhaps
  two words of context last; an all-reduce alone has its results."""
  found = arrays(x.shape)
  if x.opcode.endswith('-start') and x.opcode != 'all-reduce-start':
    return found[len(x.operands) : 2 * len(x.operands)]
  return found


def _whole(x: Instruction, ways: int) -> int:
  """Bytes of the arrays before they are divided, or after they are gathered."""
  total = sum(array.bytes for array in _arrays(x))
  return total * ways if x.opcode.startswith('reduce-scatter') else total


def _axes(x: Instruction, mesh: dict[str, int]) -> tuple[tuple[str, ...], int]:
  """Returns the axes along which the chips of one group differ, and how many there are."""
  group = _group(x, math.prod(mesh.values()))
  places = np.stack(np.unravel_index(group, list(mesh.values())), 1)
  differ = (places != places[0]).any(0)
  return tuple(axis for axis, yes in zip(mesh, differ, strict=True) if yes), len(group)


def _group(x: Instruction, chips: int) -> np.ndarray:
  """Returns the chips of the first group."""
  listed = re.search(r'(?:replica_groups|source_target_pairs)=\{\{([\d,]+)\}', x.rest)
  if listed:
    return np.array([int(n) for n in listed[1].split(',')])
  # mesh['a'=2,'b'=4] {'b'}: chips counted through axes, those of a group through some of them.
  named = re.search(r'replica_groups=mesh\[([^\]]*)\] ?\{([^}]*)\}(?!, ?device_ids)', x.rest)
  if named:
    sizes = {axis: int(size) for axis, size in re.findall(r"'(\w+)'=(\d+)", named[1])}
    within = re.findall(r"'(\w+)'", named[2])
    ids = np.arange(math.prod(sizes.values())).reshape(tuple(sizes.values()))
    return ids[tuple(slice(None) if axis in within else 0 for axis in sizes)].reshape(-1)
  # [groups, ways]<=[dims]T(order): the chips, counted through dims in another order.
  counted = re.search(r'replica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?', x.rest)
  if not counted:
    return np.arange(chips)
  dims = [int(n) for n in counted[3].split(',')]
  ids = np.arange(math.prod(dims)).reshape(dims)
  if counted[4]:
    ids = ids.transpose([int(n) for n in counted[4].split(',')])
  return ids.reshape(int(counted[1]), int(counted[2]))[0]
