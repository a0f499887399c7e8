"""Faults in a text: refused, or with `--skip_bad` left out, counted and named."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bertjax.errors import UserError

MAX_DOCUMENT = 8 * 2**20  # bytes; bounds the memory of `prepare`
NAMED = 5  # of what was left out


class Wrong(NamedTuple):
  """A fault of a line or record, and its remedy."""

  what: str
  remedy: str = 'Mend it'
  accepts: str = ''  # the flag of prepare that takes it as it is


@dataclasses.dataclass
class LeftOut:
  """Lines, records and documents that cannot be read."""

  skip: bool = False  # whether they are left out instead of refused
  count: int = 0  # number of faults in this pass
  named: list[str] = dataclasses.field(default_factory=list)  # the first of them, by file and place

  def refuse(self, place: str, wrong: Wrong) -> None:
    """Counts and names one more. Raises UserError if it may not be left out."""
    message = f'{place}: {wrong.what}'
    if not self.skip:
      remedies = (wrong.remedy, wrong.accepts, 'or pass --skip_bad to leave it out')
      raise UserError(f'{message}. {", ".join(filter(None, remedies))}')
    self.count += 1
    if len(self.named) < NAMED:
      self.named.append(message)

  def clear(self) -> None:
    """Starts counting anew, as a new pass over the text does."""
    self.count = 0
    self.named.clear()


def wrong_with(line: bytes, errors: str) -> Wrong | None:
  """Returns the fault of a line of text, or None. 'strict' errors accept only UTF-8; 'replace'
  leaves other bytes to the decoder."""
  if len(line) > MAX_DOCUMENT:
    return Wrong(f'longer than {MAX_DOCUMENT} bytes', 'Break it up')
  if b'\0' in line:
    return Wrong(f'a NUL byte, which no text has, at byte {line.index(0)}')
  if errors == 'strict' and not line.isascii():
    try:
      line.decode('utf-8')
    except UnicodeDecodeError as error:
      return Wrong(
        f'not UTF-8 at byte {error.start} (0x{line[error.start]:02x}, {error.reason})',
        'Mend it, or convert the file, as `iconv -f latin1` does with Latin-1',
        'pass --errors=replace to put U+FFFD there and count it',
      )
  return None


def strict(lines: Iterable[bytes], path: object) -> Iterator[bytes]:
  """Yields the lines of a file. Raises UserError for one that is no text, or not UTF-8; it names
  file and line."""
  for number, line in enumerate(lines, 1):
    if wrong := wrong_with(line, 'strict'):
      raise UserError(f'{path}, line {number}: {wrong.what}. {wrong.remedy}')
    yield line
