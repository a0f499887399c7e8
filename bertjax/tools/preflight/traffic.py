"""Bytes between a chip and its memory, counted over a compiled program.

Every instruction reads its operands and writes its result once; a fusion that slices an operand
reads the slice, one that updates a part of a buffer in place writes the part. A scanned body counts
as often as it runs. A Pallas call counts what its own cost estimate says: its blocks times the grid
steps that fetch them (`tests/tools/preflight/traffic_test.py` compares the two). Arrays that the
compiler keeps on the chip (memory spaces other than 0, such as `S(1)`) are free, as are scalars.

Two figures: of the arrays as the program names them, and as the chip stores them, in whole tiles
(`hlo.stored`): heads of 64 take the room of 128. The estimate of a Pallas call grows for the latter
as its operands and results do together.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from bertjax.errors import UserError
from bertjax.tools.preflight.hlo import ARRAY, Computation, Instruction, callee, parse, size, stored

FREE = {
  'parameter', 'constant', 'get-tuple-element', 'tuple', 'bitcast', 'after-all', 'partition-id',
  'replica-id', 'opt-barrier', 'domain',
}  # fmt: skip
# Custom calls that name or reserve memory and move nothing.
_NAMES = ('AllocateBuffer', 'ConcatBitcast', 'AssumeGatherIndicesInBound')
# What jax writes between the names of our code.
_LOOPS = {'while', 'body', 'cond', 'closed_call', 'checkpoint', 'rematted_computation'}
_MOVES = {'copy', 'transpose', 'reshape', 'bitcast', 'parameter', 'constant', 'tuple'}


class Account(NamedTuple):
  """Bytes that a program moves."""

  bytes: int  # all bytes, counted by the shapes of the arrays
  padded_bytes: int  # bytes of the arrays as they are stored; the fields below are parts of it
  pallas_bytes: int  # bytes of Pallas calls
  copy_bytes: int  # bytes of operations that only change a layout
  prefetch_bytes: int  # bytes brought to the chip's fast memory before their use, or back
  stacked_bytes: int  # written into stacks of a scan, for its backward pass or as its gradients
  # (operation of our code, a Pallas call's or a copy's among them) -> bytes
  by_operation: dict[str, int]
  open_loops: int  # number of loops whose turns depend on the data; each was counted as one turn


class _Count(NamedTuple):
  """Bytes by (kind, operation), and how many loops are open."""

  moved: Counter
  open_loops: int


def account(text: str) -> Account:
  """Counts a compiled program, given as its HLO text. Raises UserError: a Pallas call without a
  cost estimate."""
  computations, entry = parse(text)
  named = _count(computations, entry)
  kept = _count({name: _as_stored(body) for name, body in computations.items()}, entry)
  kinds, operations = Counter(), Counter()
  for (kind, operation), moved in kept.moved.items():
    kinds[kind] += moved
    operations[operation] += moved
  return Account(
    named.moved.total(), kept.moved.total(), kinds['pallas'], kinds['copy'], kinds['prefetch'],
    kinds['stacked'], dict(operations.most_common()), named.open_loops,
  )  # fmt: skip


def _as_stored(body: Computation) -> Computation:
  """Returns a computation whose arrays are whole tiles."""
  out = {}
  for x in body.values():
    out[x.name] = x._replace(shape=stored(x.shape))
    if _is_pallas(x):
      shapes = [x.shape, *(body[o].shape for o in x.operands)]
      named, kept = (sum(map(size, shapes)), sum(size(stored(shape)) for shape in shapes))
      grown = round(_estimate(x) * kept / named) if named else _estimate(x)
      rest = _ESTIMATE.sub(lambda m, grown=grown: f'{m[1]}{grown}"', x.rest)
      out[x.name] = out[x.name]._replace(rest=rest)
  return out


def _count(computations: dict[str, Computation], name: str) -> _Count:
  body, moved, open_loops = computations[name], Counter(), 0
  for x in body.values():
    inner, trips = _called(computations, x)
    times, open_loops = 1 if trips is None else trips, open_loops + (trips is None)
    if x.opcode == 'conditional':
      inner = [max(inner, key=lambda branch: _count(computations, branch).moved.total())]
    elif x.opcode == 'fusion' or not inner:  # what is fused is counted as one instruction
      inner = []
      if _is_pallas(x):
        moved['pallas', operation(x)] += _estimate(x)
      else:
        for kind, part in _own(computations, body, x).items():
          moved[kind, operation(x)] += part
    for called in inner:
      part = _count(computations, called)
      moved.update({key: times * value for key, value in part.moved.items()})
      open_loops += part.open_loops
  return _Count(moved, open_loops)


def operation(x: Instruction) -> str:
  """Returns the operation of our code behind an instruction: jax's op_name, without transforms."""
  found = re.search(r'op_name="([^"]*)"', x.rest)
  if not found:
    return x.opcode
  backward = 'backward: ' if 'transpose(' in found[1] else ''
  parts = [re.sub(r'\w+\(|\)', '', part) for part in found[1].split('/')[1:]]
  return backward + '/'.join(part for part in parts if part not in _LOOPS)


def _is_pallas(x: Instruction) -> bool:
  return 'custom_call_target="tpu_custom_call"' in x.rest


def instructions(
  computations: dict[str, Computation], name: str, times: int = 1
) -> Iterator[tuple[Instruction, int]]:
  """Every instruction that a computation runs, within loops, calls and fusions too, and how often.
  All branches of a condition are taken."""
  for x in computations[name].values():
    yield x, times
    inner, trips = _called(computations, x)
    for called in inner:
      yield from instructions(computations, called, times * (trips or 1))


def _called(computations: dict[str, Computation], x: Instruction) -> tuple[list[str], int | None]:
  """Returns the computations that an instruction runs, without those of a reduction's elements, and
  how often; None: as often as the data says."""
  if x.opcode == 'while':
    return [callee(x, 'body'), callee(x, 'condition')], _trips(computations, x)
  if x.opcode == 'conditional':
    listed = re.search(r'branch_computations=\{([^}]*)\}', x.rest)
    if listed:
      return re.findall(r'%([\w.-]+)', listed[1]), 1
    return [callee(x, 'true_computation'), callee(x, 'false_computation')], 1
  if 'calls=' in x.rest:
    return [callee(x, 'calls')], 1
  return ([callee(x, 'to_apply')] if x.opcode == 'call' else []), 1


def _trips(computations: dict[str, Computation], x: Instruction) -> int | None:
  """Returns the turns of a scan, which a GPU's compiler says, or `counter < constant` of a counter
  that each turn adds to, as scans do from 0 by 1; None for another condition."""
  if said := re.search(r'"known_trip_count":\{"n":"(\d+)"', x.rest):
    return int(said[1])
  condition = computations[callee(x, 'condition')]
  root = next(line for line in condition.values() if line.root)
  values = [int(condition[o].rest) for o in root.operands if condition[o].opcode == 'constant']
  if root.opcode != 'compare' or 'direction=LT' not in root.rest or len(values) != 1:
    return None
  places = [m for o in root.operands if (m := re.search(r'\bindex=(\d+)', condition[o].rest))]
  body = computations[callee(x, 'body')]
  after = next(line for line in body.values() if line.root)
  if not places or after.opcode != 'tuple':
    return None
  counter = body[after.operands[int(places[0][1])]]
  if counter.opcode == 'fusion':
    counter = next(line for line in computations[callee(counter, 'calls')].values() if line.root)
  return values[0] if counter.opcode == 'add' else None


_ESTIMATE = re.compile(r'("cost_estimate":\{[^}]*"bytes_accessed":")(\d+)"')


def _estimate(x: Instruction) -> int:
  found = _ESTIMATE.search(x.rest)
  if not found:
    raise UserError(f'traffic: expected a cost_estimate in the Pallas call {x.name}, got none')
  return int(found[2])


def _own(computations: dict[str, Computation], body: Computation, x: Instruction) -> Counter:
  """Kind -> bytes that one instruction, which calls nothing but a fusion, reads and writes."""
  if x.opcode in FREE or x.opcode.endswith('-done') or x.opcode.endswith('-update'):
    return Counter()
  if x.opcode == 'custom-call' and any(f'target="{name}"' in x.rest for name in _NAMES):
    return Counter()
  shape_of = lambda name: body[name].shape if name in body else ''
  if x.opcode == 'fusion':
    inside = computations[callee(x, 'calls')]
    reads = _parameters(computations, inside)
    read = sum(min(reads[i], size(shape_of(o))) for i, o in enumerate(x.operands) if i in reads)
    written, stacked = _written(computations, inside, x.shape)
    kind = 'copy' if {line.opcode for line in inside.values()} <= _MOVES else 'other'
    return Counter({kind: read + written - stacked, 'stacked': stacked})
  if x.opcode in ('dynamic-slice', 'slice', 'gather'):
    read = min(size(shape_of(x.operands[0])), _elements(x.shape))
    return Counter(other=read + size(x.shape))
  if x.opcode == 'dynamic-update-slice':
    update = shape_of(x.operands[1])
    return Counter(other=size(update), stacked=min(size(x.shape), _elements(update)))
  if x.opcode in ('copy-start', 'slice-start'):  # source and result, in either order, and context
    ends = [m[0] for m in ARRAY.finditer(x.shape)][:2]
    moved = min(_elements(end) for end in ends)
    return Counter(prefetch=sum(min(size(end), moved) for end in ends))
  kind = 'copy' if x.opcode in _MOVES else 'other'
  kind = 'pallas' if '"__gpu$xla.gpu.triton"' in x.rest else kind
  return Counter({kind: sum(size(shape_of(o)) for o in x.operands) + size(x.shape)})


def _elements(shape: str) -> int:
  """Bytes of all arrays in a shape's text, wherever they are kept."""
  return size(re.sub(r'S\(\d+\)', '', shape))


def _read(computations: dict[str, Computation], body: Computation, name: str) -> int:
  """Bytes of a value that a fused computation reads: its slices where it only slices it."""
  if body[name].root:
    return _elements(body[name].shape)
  total = 0
  for user in (x for x in body.values() if name in x.operands):
    if user.opcode in ('dynamic-slice', 'slice', 'gather') and user.operands[0] == name:
      total += _elements(user.shape)
    elif user.opcode == 'dynamic-update-slice' and user.operands[0] == name:
      continue  # in place
    elif user.opcode == 'bitcast' or _renames(computations, user):
      total += _read(computations, body, user.name)
    elif user.opcode == 'fusion':
      inside = computations[callee(user, 'calls')]
      reads = _parameters(computations, inside)
      total += sum(reads[i] for i, o in enumerate(user.operands) if o == name)
    else:
      return _elements(body[name].shape)
  return min(total, _elements(body[name].shape))


def _renames(computations: dict[str, Computation], x: Instruction) -> bool:
  """Returns whether a fusion only views its operand in another shape."""
  if x.opcode != 'fusion':
    return False
  inside = computations[callee(x, 'calls')]
  return {line.opcode for line in inside.values()} == {'parameter', 'bitcast'}


def _parameters(computations: dict[str, Computation], body: Computation) -> dict[int, int]:
  """Number of a fused computation's parameter -> bytes that it reads of it."""
  out = {}
  for line in body.values():
    if line.opcode == 'parameter':
      out[int(line.rest)] = _read(computations, body, line.name)
  return out


def _written(
  computations: dict[str, Computation], body: Computation, shape: str
) -> tuple[int, int]:
  """Bytes that a fusion writes, and those of them that update a part of a buffer in place."""
  root = next(x for x in body.values() if x.root)
  if 'custom_call_target="AsyncCollectiveStart"' in root.rest:  # its operand again, then the result
    _, result = [m[0] for m in ARRAY.finditer(shape)][:2]
    return size(result), 0
  results, outer = [root], [shape]  # several arrays of one reduction too
  if root.opcode == 'tuple':
    results, outer = [body[o] for o in root.operands], [m[0] for m in ARRAY.finditer(shape)]
  total, updates = 0, 0
  for result, text in zip(results, outer, strict=True):
    found, update = _result(computations, body, result)
    total += min(size(text), found)
    updates += min(size(text), update)
  return total, updates


def _result(
  computations: dict[str, Computation], body: Computation, x: Instruction
) -> tuple[int, int]:
  """Returns the two numbers of `_written` for one result."""
  if x.opcode == 'bitcast':
    return _result(computations, body, body[x.operands[0]])
  if x.opcode == 'dynamic-update-slice':
    update = _elements(body[x.operands[1]].shape)
    return update, update
  if x.opcode == 'fusion':
    inside = computations[callee(x, 'calls')]
    return _written(computations, inside, re.sub(r'S\(\d+\)', '', x.shape))
  return _elements(x.shape), 0
