"""Plain text: a blank line ends a document, except between `<doc ...>` and `</doc>` lines, where it
ends a paragraph; verbatim, nothing ends one. What nothing divides comes in blocks.
"""

import logging
import re
from collections.abc import Iterable, Iterator

from bertjax.data.text import documents as documents_lib
from bertjax.data.text import left_out as left_out_lib
from bertjax.data.text.formats import Reading

_BLOCK = 2**16  # bytes of undivided text that go together, where that is no more than a hundredth
_DOC = re.compile(rb'<doc(\s[^>]*)?>\s*')
_DOC_END = re.compile(rb'</doc>\s*')


def checked(lines: Iterable[bytes], reading: Reading) -> Iterator[bytes]:
  """Yields the lines in which nothing is wrong.

  Raises:
    UserError: a line that is no text and may not be left out.
  """
  for number, line in enumerate(lines, 1):
    wrong = left_out_lib.wrong_with(line, reading.errors)
    if wrong:
      reading.left_out.refuse(f'{reading.path}, line {number}', wrong)
    else:
      yield line


def verbatim(lines: Iterable[bytes], reading: Reading, total: int) -> Iterator[bytes]:
  """Yields blocks of lines, blank ones too: 64 KiB each, or a hundredth of `total` bytes."""
  blocks = documents_lib.blocks(checked(lines, reading), min(_BLOCK, total // 100))
  yield from map(b''.join, blocks)


def documents(lines: Iterable[bytes], reading: Reading, total: int) -> Iterator[bytes]:
  """Yields documents; one of more than MAX_DOCUMENT bytes is cut, with a warning.

  Where nothing ends a document, up to the end of the file or in MAX_DOCUMENT bytes, more than 64
  KiB of text come in blocks, as verbatim text does, so that a share of them can be held out.

  Args:
    total: bytes of the file.
  """
  divided, block = False, 0
  for parts, ended_by in _ended(checked(lines, reading)):
    divided = divided or ended_by == 'a line'
    if divided and ended_by == 'its size':
      limit = left_out_lib.MAX_DOCUMENT
      logging.warning('%s: a document of more than %d bytes is cut', reading.path, limit)
    if divided or sum(map(len, parts)) <= _BLOCK:
      yield b''.join(parts)
      continue
    if not block:
      block = min(_BLOCK, total // 100)
      logging.warning(
        '%s: no empty line ends a document: a document is made of every %d bytes, in whole lines',
        reading.path, block,
      )  # fmt: skip
    yield from map(b''.join, documents_lib.blocks(parts, block))


def _ended(lines: Iterable[bytes]) -> Iterator[tuple[list[bytes], str]]:
  """Yields the lines of each document, and what ended it: 'a line', 'its size' or 'the file'."""
  tagged = ended = False
  parts, size = [], 0
  for line in lines:
    opens, closes = _DOC.fullmatch(line), _DOC_END.fullmatch(line)
    if opens or closes or (not tagged and _is_blank(line)):
      tagged, ended = bool(opens) or (tagged and not closes), bool(parts)
      continue
    if parts and (ended or size + len(line) > left_out_lib.MAX_DOCUMENT):
      yield parts, 'a line' if ended else 'its size'
      parts, size = [], 0
    ended = False
    parts.append(line)
    size += len(line)
  if parts:
    yield parts, 'the file'


def _is_blank(line: bytes) -> bool:
  """Whether a line has white space alone, such as U+3000, too: create_pretraining_data.py strips
  what it has decoded."""
  rest = line.strip()
  # The first bytes of all white space that is not ASCII.
  return not rest or (rest[0] in b'\xc2\xe1\xe2\xe3' and not rest.decode(errors='replace').strip())
