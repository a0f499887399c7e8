"""The text of a compiled program: its computations, and what its arrays take in a chip's memory."""

import math
import re
from typing import NamedTuple

from bertjax.errors import UserError

BYTES = {
  'pred': 1, 's8': 1, 'u8': 1, 's16': 2, 'u16': 2, 'bf16': 2, 'f16': 2, 's32': 4, 'u32': 4,
  'f32': 4, 's64': 8, 'u64': 8, 'f64': 8,
}  # fmt: skip
ARRAY = re.compile(r'\b(' + '|'.join(BYTES) + r')\[([\d,]*)\](\{[^}]*\})?')
_HEAD = re.compile(r'^(ENTRY )?%?([\w.-]+) \(.*\) -> .* \{$')
_LINE = re.compile(r'^\s+(ROOT )?%([\w.-]+) = (\(.*?\)|\S+) ([\w-]+)\((.*)$')


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


class Sized(NamedTuple):
  """An array of a shape's text."""

  dtype: str  # as it is written there
  bytes: int  # of its elements
  on_chip: bool  # whether it lies in the chip's fast memory, a space other than 0


def arrays(shape: str) -> list[Sized]:
  """Returns the arrays in a shape's text, in order, without the scalars."""
  return [
    Sized(
      dtype,
      BYTES[dtype] * math.prod(int(d) for d in dims.split(',')),
      re.search(r'S\([1-9]', layout) is not None,
    )
    for dtype, dims, layout in ARRAY.findall(shape)
    if dims
  ]


def size(shape: str) -> int:
  """Bytes in the chip's memory of all arrays in a shape's text; scalars are free."""
  return sum(array.bytes for array in arrays(shape) if not array.on_chip)


def parse(text: str) -> tuple[dict[str, Computation], str]:
  """Returns the computations of a compiled program by name, and the name of the first to run."""
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


def stored(shape: str) -> str:
  """Returns the shape's text with its dimensions as the chip stores them: rounded up to whole
  tiles. bf16[512,64]{1,0:T(8,128)(2,1)} is kept as [512,128]: the minor axes, the first of the
  layout's, are laid out in tiles of 8 by 128; the second pair orders what is within a tile."""

  def rounded(array: re.Match) -> str:
    dtype, dims, layout = array[1], array[2], array[3] or ''
    tile = re.search(r'T\(([\d,]+)\)', layout)
    if not dims or not tile:
      return array[0]
    sizes = [int(d) for d in dims.split(',')]
    minor_first = [int(axis) for axis in layout[1:].partition(':')[0].split(',')]
    units = reversed([int(unit) for unit in tile[1].split(',')])
    for axis, unit in zip(minor_first, units, strict=False):
      sizes[axis] = -(-sizes[axis] // unit) * unit
    return f'{dtype}[{",".join(map(str, sizes))}]{layout}'

  return ARRAY.sub(rounded, shape)


def callee(x: Instruction, name: str) -> str:
  """Returns the computation that an attribute of an instruction names."""
  found = re.search(rf'\b{name}=%([\w.-]+)', x.rest)
  if not found:
    raise UserError(f'traffic: expected {name}= in {x.name}, got {x.rest[:120]!r}')
  return found[1]
