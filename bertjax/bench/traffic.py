"""Bytes between a chip and its memory, counted over a compiled program.

Every instruction reads its operands and writes its result once; a fusion that slices an operand
reads the slice, one that updates a part of a buffer in place writes the part. A scanned body counts
as often as it runs. A Pallas call counts what its own cost estimate says: its blocks times the grid
steps that fetch them (`tests/bench/traffic_test.py` compares the two). Arrays that the compiler
keeps on the chip (memory spaces other than 0, such as `S(1)`) are free, as are scalars.
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from bertjax.errors import UserError

BYTES = {
  'pred': 1, 's8': 1, 'u8': 1, 's16': 2, 'u16': 2, 'bf16': 2, 'f16': 2, 's32': 4, 'u32': 4,
  'f32': 4, 's64': 8, 'u64': 8, 'f64': 8,
}  # fmt: skip
FREE = {
  'parameter', 'constant', 'get-tuple-element', 'tuple', 'bitcast', 'after-all', 'partition-id',
  'replica-id', 'opt-barrier', 'domain',
}  # fmt: skip
# Custom calls that name or reserve memory and move nothing.
_NAMES = ('AllocateBuffer', 'ConcatBitcast', 'AssumeGatherIndicesInBound')
_ARRAY = re.compile(r'\b(' + '|'.join(BYTES) + r')\[([\d,]*)\](\{[^}]*\})?')
_HEAD = re.compile(r'^(ENTRY )?%?([\w.-]+) \(.*\) -> .* \{$')
_LINE = re.compile(r'^\s+(ROOT )?%([\w.-]+) = (\(.*?\)|\S+) ([\w-]+)\((.*)$')


class Account(NamedTuple):
  """Attributes: bytes, all of them; pallas_bytes, those of Pallas calls; open_loops, how many loops
  turn as often as the data says, and were counted as one turn."""

  bytes: int
  pallas_bytes: int
  open_loops: int


class Instruction(NamedTuple):
  """One line: `shape` is its text; `rest` what follows the operands, or the
  number of a parameter, the value of a constant."""

  name: str
  shape: str
  opcode: str
  operands: list[str]
  rest: str
  root: bool


Computation = dict[str, Instruction]


def size(shape: str) -> int:
  """Bytes in the chip's memory of all arrays in a shape's text; scalars are free."""
  total = 0
  for dtype, dims, layout in _ARRAY.findall(shape):
    if dims and not re.search(r'S\([1-9]', layout):
      total += BYTES[dtype] * math.prod(int(d) for d in dims.split(','))
  return total


def parse(text: str) -> tuple[dict[str, Computation], str]:
  """The computations of a compiled program by name, and the name of the first to run."""
  computations, entry, current = {}, '', {}
  for line in text.splitlines():
    head = _HEAD.match(line)
    if head:
      current = computations[head[2]] = {}
      entry = head[2] if head[1] else entry
    elif (found := _LINE.match(line)) is not None:
      root, name, shape, opcode, tail = found.groups()
      inside, rest = (
        ([], tail.split(')')[0]) if opcode in ('parameter', 'constant') else _operands(tail)
      )
      current[name] = Instruction(name, shape, opcode, inside, rest, bool(root))
  if not entry:
    raise UserError('traffic: expected the text of a compiled program with an ENTRY; got none')
  return computations, entry


def _operands(tail: str) -> tuple[list[str], str]:
  """Splits `a, b), attributes` at the bracket that closes the operands."""
  depth = 1
  for i, letter in enumerate(tail):
    depth += (letter == '(') - (letter == ')')
    if not depth:
      return re.findall(r'%([\w.-]+)', tail[:i]), tail[i + 1 :]
  raise UserError(f'traffic: expected operands in brackets, got {tail[:80]!r}')


def account(text: str) -> Account:
  """Counts a compiled program, given as its HLO text.

  Raises:
    UserError: a Pallas call without a cost estimate.
  """
  computations, entry = parse(text)
  return _count(computations, entry)


def _count(computations: dict[str, Computation], name: str) -> Account:
  body, total, pallas, open_loops = computations[name], 0, 0, 0
  for x in body.values():
    times, inner = 1, []
    if x.opcode == 'while':
      trips, inner = _trips(computations, x), [_callee(x, 'body'), _callee(x, 'condition')]
      times, open_loops = 1 if trips is None else trips, open_loops + (trips is None)
    elif x.opcode == 'conditional':
      inner = [max(_branches(x), key=lambda branch: _count(computations, branch).bytes)]
    elif x.opcode == 'call' or (x.opcode.endswith('-start') and 'calls=' in x.rest):
      inner = [_callee(x, 'to_apply' if 'to_apply=' in x.rest else 'calls')]
    elif 'custom_call_target="tpu_custom_call"' in x.rest:
      pallas += _estimate(x)
      total += _estimate(x)
    else:
      total += _own(computations, body, x)
    for callee in inner:
      part = _count(computations, callee)
      total, pallas = total + times * part.bytes, pallas + times * part.pallas_bytes
      open_loops += part.open_loops
  return Account(total, pallas, open_loops)


def _callee(x: Instruction, name: str) -> str:
  found = re.search(rf'\b{name}=%([\w.-]+)', x.rest)
  if not found:
    raise UserError(f'traffic: expected {name}= in {x.name}, got {x.rest[:120]!r}')
  return found[1]


def _branches(x: Instruction) -> list[str]:
  listed = re.search(r'branch_computations=\{([^}]*)\}', x.rest)
  if listed:
    return re.findall(r'%([\w.-]+)', listed[1])
  return [_callee(x, 'true_computation'), _callee(x, 'false_computation')]


def _trips(computations: dict[str, Computation], x: Instruction) -> int | None:
  """How often a scan runs: its condition is `counter < constant`, and it counts from 0 by 1. None
  where the condition is another one."""
  condition = computations[_callee(x, 'condition')]
  root = next(line for line in condition.values() if line.root)
  values = [int(condition[o].rest) for o in root.operands if condition[o].opcode == 'constant']
  if root.opcode != 'compare' or 'direction=LT' not in root.rest or len(values) != 1:
    return None
  return values[0]


def _estimate(x: Instruction) -> int:
  found = re.search(r'"cost_estimate":\{[^}]*"bytes_accessed":"(\d+)"', x.rest)
  if not found:
    raise UserError(f'traffic: expected a cost_estimate in the Pallas call {x.name}, got none')
  return int(found[1])


def _own(computations: dict[str, Computation], body: Computation, x: Instruction) -> int:
  """Bytes that one instruction, which calls nothing but a fusion, reads and writes."""
  if x.opcode in FREE or x.opcode.endswith('-done') or x.opcode.endswith('-update'):
    return 0
  if x.opcode == 'custom-call' and any(f'target="{name}"' in x.rest for name in _NAMES):
    return 0
  shape_of = lambda name: body[name].shape if name in body else ''
  if x.opcode == 'fusion':
    inside = computations[_callee(x, 'calls')]
    reads = _parameters(computations, inside)
    read = sum(min(reads[i], size(shape_of(o))) for i, o in enumerate(x.operands) if i in reads)
    return read + _written(computations, inside, x.shape)
  if x.opcode in ('dynamic-slice', 'slice', 'gather'):
    read = min(size(shape_of(x.operands[0])), _elements(x.shape))
    return read + size(x.shape)
  if x.opcode == 'dynamic-update-slice':
    update = shape_of(x.operands[1])
    return size(update) + min(size(x.shape), _elements(update))
  if x.opcode in ('copy-start', 'slice-start'):  # source and result, in either order, and context
    ends = [m[0] for m in _ARRAY.finditer(x.shape)][:2]
    moved = min(_elements(end) for end in ends)
    return sum(min(size(end), moved) for end in ends)
  return sum(size(shape_of(o)) for o in x.operands) + size(x.shape)


def _elements(shape: str) -> int:
  """Bytes of all arrays in a shape's text, wherever they are kept."""
  return size(re.sub(r'S\(\d+\)', '', shape))


def _users(body: Computation, name: str) -> Iterator[Instruction]:
  return (x for x in body.values() if name in x.operands)


def _read(computations: dict[str, Computation], body: Computation, name: str) -> int:
  """Bytes of a value that a fused computation reads: its slices where it only slices it."""
  total = 0
  for user in _users(body, name):
    if user.opcode in ('dynamic-slice', 'slice', 'gather') and user.operands[0] == name:
      total += _elements(user.shape)
    elif user.opcode == 'dynamic-update-slice' and user.operands[0] == name:
      continue  # in place
    elif user.opcode == 'bitcast':
      total += _read(computations, body, user.name)
    elif user.opcode == 'fusion':
      inside = computations[_callee(user, 'calls')]
      reads = _parameters(computations, inside)
      total += sum(reads[i] for i, o in enumerate(user.operands) if o == name)
    else:
      return _elements(body[name].shape)
  return min(total, _elements(body[name].shape))


def _parameters(computations: dict[str, Computation], body: Computation) -> dict[int, int]:
  """Number of a fused computation's parameter -> bytes that it reads of it."""
  out = {}
  for line in body.values():
    if line.opcode == 'parameter':
      out[int(line.rest)] = _read(computations, body, line.name)
  return out


def _written(computations: dict[str, Computation], body: Computation, shape: str) -> int:
  """Bytes that a fusion writes: the update alone where a result is updated in place."""
  root = next(x for x in body.values() if x.root)
  results = [body[o] for o in root.operands] if root.opcode == 'tuple' else [root]
  outer = [m[0] for m in _ARRAY.finditer(shape)]
  total = 0
  for result, text in zip(results, outer, strict=True):
    total += min(size(text), _result(computations, body, result))
  return total


def _result(computations: dict[str, Computation], body: Computation, x: Instruction) -> int:
  if x.opcode == 'bitcast':
    return _result(computations, body, body[x.operands[0]])
  if x.opcode == 'dynamic-update-slice':
    return _elements(body[x.operands[1]].shape)
  if x.opcode == 'fusion':
    inside = computations[_callee(x, 'calls')]
    return _written(computations, inside, re.sub(r'S\(\d+\)', '', x.shape))
  return _elements(x.shape)
