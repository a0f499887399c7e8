"""Plain text: a blank line ends a document, except between `<doc ...>` and `</doc>` lines, where it
ends a paragraph; verbatim, nothing ends one.
"""

import logging
import re
from collections.abc import Iterable, Iterator

from bertjax.data.text import documents as documents_lib
from bertjax.data.text import left_out as left_out_lib
from bertjax.data.text.formats import Reading

_BLOCK = 2**16  # bytes of verbatim text that go together, where that is no more than a hundredth
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


def documents(lines: Iterable[bytes], reading: Reading) -> Iterator[bytes]:
  """Yields documents; one of more than MAX_DOCUMENT bytes is cut, with a warning."""
  tagged, parts, size = False, [], 0
  for line in checked(lines, reading):
    opens, closes = _DOC.fullmatch(line), _DOC_END.fullmatch(line)
    blank = not tagged and _is_blank(line)
    full = size + len(line) > left_out_lib.MAX_DOCUMENT
    if parts and (opens or closes or blank or full):
      if full:
        limit = left_out_lib.MAX_DOCUMENT
        logging.warning('%s: a document of more than %d bytes is cut', reading.path, limit)
      yield b''.join(parts)
      parts, size = [], 0
    tagged = bool(opens) or (tagged and not closes)
    if not (opens or closes or blank):
      parts.append(line)
      size += len(line)
  if parts:
    yield b''.join(parts)


def _is_blank(line: bytes) -> bool:
  """Whether a line has white space alone, such as U+3000, too: create_pretraining_data.py strips
  what it has decoded."""
  rest = line.strip()
  # The first bytes of all white space that is not ASCII.
  return not rest or (rest[0] in b'\xc2\xe1\xe2\xe3' and not rest.decode(errors='replace').strip())
