"""The largest arrays that a compiled step holds besides its arguments, by the code that makes them.

libtpu writes where each value lies in the step's temporary memory (buffer-assignment), and which
line of source each instruction comes from (stack frames, in the text of the program).
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from bertjax.tools.preflight import hlo, traffic

_VALUE = re.compile(
  r'^ value: <\d+ ([\w.-]+?)(?:\{[\d,]*\})? @\d+> \(size=(\d+),offset=(\d+)\): (\w+\[[\d,]+\])',
  re.M,
)
_TEMPORARY = re.compile(
  r'^allocation \d+: size \d+, (?:page \d+, )?preallocated-temp:\n((?: .*\n)+)', re.M
)
_OURS = 'bertjax/'


class Buffer(NamedTuple):
  """A place in a chip's memory, or several that differ in nothing but their address."""

  count: int  # how many
  bytes: int  # of each, as stored
  array: str  # what lies there for some of the step, dtype and shape; others may before and after
  operation: str  # of our code that makes it, by jax's names; an opcode where it has none
  line: str  # bertjax/FILE.py:LINE of it, '' where it has none


def largest(program: str, assignment: str, most: int) -> list[Buffer]:
  """Returns the largest places in temporary memory that do not overlap, the largest first, of the
  text of a compiled program and libtpu's buffer-assignment."""
  instructions = {name: x for body in hlo.parse(program)[0].values() for name, x in body.items()}
  lines, taken = _lines(program), []
  found: dict[tuple[int, str, str, str], int] = {}
  values = [
    (int(size), int(offset), name, array)
    for allocation in _TEMPORARY.findall(assignment)
    for name, size, offset, array in _VALUE.findall(allocation)
  ]
  for size, offset, name, array in sorted(values, key=lambda value: -value[0]):
    if any(offset < end and start < offset + size for start, end in taken):
      continue
    taken.append((offset, offset + size))
    same = [n for *place, n, a in values if (*place, a) == (size, offset, array)]
    told = [_told(instructions[n], lines) for n in same if n in instructions] or [(name, '')]
    # Of the values in one place the first that names a line.
    key = (size, array, *max(told, key=lambda each: bool(each[1])))
    if key not in found and len(found) == most:
      break
    found[key] = found.get(key, 0) + 1
  return [Buffer(count, *key) for key, count in found.items()]


def _told(x: hlo.Instruction, lines: Mapping[int, str]) -> tuple[str, str]:
  """Returns the operation and the line of an instruction."""
  frame = re.search(r'stack_frame_id=(\d+)', x.rest)
  return traffic.operation(x), lines.get(int(frame[1]), '') if frame else ''


def _lines(program: str) -> dict[int, str]:
  """Number of a stack frame -> the innermost line of our code in it."""
  names = dict(re.findall(r'^(\d+) "(.*)"$', _table(program, 'FileNames'), re.M))
  place = r'^(\d+) \{file_name_id=(\d+) function_name_id=\d+ line=(\d+)'
  places = {
    i: (names.get(file, ''), line) for i, file, line in _all(program, 'FileLocations', place)
  }
  frame = r'^(\d+) \{file_location_id=(\d+)(?: parent_frame_id=(\d+))?'
  frames = {i: (at, above) for i, at, above in _all(program, 'StackFrames', frame)}
  found = {}
  for number in frames:
    inner, said = number, ''
    while inner in frames and not said:
      at, above = frames[inner]
      file, line = places.get(at, ('', ''))
      if f'/{_OURS}' in file:
        said = f'{_OURS}{file.rpartition(f"/{_OURS}")[2]}:{line}'
      inner = str(int(above or 0) - 1)  # written as the number that follows the one above's
    found[int(number)] = said
  return found


def _all(program: str, table: str, pattern: str) -> list[tuple[str, ...]]:
  return re.findall(pattern, _table(program, table), re.M)


def _table(program: str, name: str) -> str:
  """Returns the lines of a table at the head of the program."""
  found = re.search(rf'^{name}\n(.*?)\n\n', program, re.M | re.S)
  return found[1] if found else ''
