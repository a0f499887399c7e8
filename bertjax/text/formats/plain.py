"""Plain text: a blank line ends a document, except between `<doc ...>` and `</doc>` lines, where it
ends a paragraph; verbatim, nothing ends one. What is not divided comes in blocks.
"""

import re
from collections.abc import Iterable, Iterator

from bertjax.errors import warn_once
from bertjax.text import documents as documents_lib
from bertjax.text import left_out as left_out_lib
from bertjax.text.formats.records import Reading

_BLOCK = 2**16  # bytes of undivided text that go together, where that is no more than a hundredth
_LONG = 2**20  # bytes of a document
_DOC = re.compile(rb'<doc(\s[^>]*)?>\s*')
_DOC_END = re.compile(rb'</doc>\s*')


def checked(lines: Iterable[bytes], reading: Reading) -> Iterator[bytes]:
  """Yields the lines in which nothing is wrong. Raises UserError: a line that is no text and may
  not be left out."""
  for number, line in enumerate(lines, 1):
    wrong = left_out_lib.wrong_with(line, reading.errors)
    if wrong:
      reading.left_out.refuse(f'{reading.path}, line {number}', wrong)
    else:
      yield line


def blocks(lines: Iterable[bytes], total: int) -> Iterator[bytes]:
  """Yields blocks of lines, blank ones too: 64 KiB each, or a hundredth of `total` bytes."""
  yield from map(b''.join, documents_lib.blocks(lines, min(_BLOCK, total // 100)))


def documents(lines: Iterable[bytes], path: object, total: int) -> Iterator[bytes]:
  """Yields documents; one that is too long comes as blocks, with a warning. Too long is more than 1
  MiB; before a blank line ended any document also more than 64 KiB and than a hundredth of the
  `total` bytes, so that a share of undivided text can be held out."""
  divided = False
  for parts, ended in _ended(lines):
    divided = divided or ended
    size = sum(map(len, parts))
    if size <= (_LONG if divided else min(max(_BLOCK, total // 100), _LONG)):
      yield b''.join(parts)
    else:
      warn_once(
        f'{path}: no empty line ends a document where one is to be expected. Its lines are all '
        'kept, but in documents of about 64 KiB, or a hundredth of the text, that end anywhere: '
        'put an empty line between documents, or give JSON lines with one in each'
      )
      yield from blocks(parts, max(size, total))


def _ended(lines: Iterable[bytes]) -> Iterator[tuple[list[bytes], bool]]:
  """Yields the lines of each document, MAX_DOCUMENT bytes at most, and whether a line ended it."""
  tagged = ended = False
  parts, size = [], 0
  for line in lines:
    opens, closes = _DOC.fullmatch(line), _DOC_END.fullmatch(line)
    if opens or closes or (not tagged and _is_blank(line)):
      tagged, ended = bool(opens) or (tagged and not closes), bool(parts)
      continue
    if parts and (ended or size + len(line) > left_out_lib.MAX_DOCUMENT):
      yield parts, ended
      parts, size = [], 0
    ended = False
    parts.append(line)
    size += len(line)
  if parts:
    yield parts, False


def _is_blank(line: bytes) -> bool:
  """Returns True for white space alone, Unicode's too, as create_pretraining_data.py strips it."""
  rest = line.strip()
  # The first bytes of all white space that is not ASCII.
  return not rest or (rest[0] in b'\xc2\xe1\xe2\xe3' and not rest.decode(errors='replace').strip())
