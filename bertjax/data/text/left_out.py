"""What is wrong with a text: refused, or with `--skip_bad` left out, counted and named."""

import dataclasses

from bertjax.errors import UserError

MAX_DOCUMENT = 8 * 2**20  # bytes; bounds the memory of `prepare`
NAMED = 5  # of what was left out


@dataclasses.dataclass
class LeftOut:
  """Lines, records and documents that cannot be read.

  Attributes:
    skip: whether they are left out instead of refused.
    count: how many were.
    named: the first of them, by file and place.
  """

  skip: bool = False
  count: int = 0
  named: list[str] = dataclasses.field(default_factory=list)

  def refuse(self, message: str) -> None:
    """Counts and names one more.

    Raises:
      UserError: it may not be left out.
    """
    if not self.skip:
      raise UserError(f'{message}. Mend it, or pass --skip_bad to leave it out')
    self.count += 1
    if len(self.named) < NAMED:
      self.named.append(message)

  def clear(self) -> None:
    """Starts counting anew, as a new pass over the text does."""
    self.count = 0
    self.named.clear()


def wrong_with(line: bytes, errors: str) -> str:
  """What is wrong with a line of text, or ''.

  Args:
    line: as it lies in the file; one that is too long may be cut behind the limit.
    errors: 'strict' takes UTF-8 alone; 'replace' leaves other bytes to whoever decodes.
  """
  if len(line) > MAX_DOCUMENT:
    return f'longer than {MAX_DOCUMENT} bytes: break it up'
  if b'\0' in line:
    return f'a NUL byte at byte {line.index(0)} of the line, which no text has'
  if errors == 'strict' and not line.isascii():
    try:
      line.decode('utf-8')
    except UnicodeDecodeError as error:
      return (
        f'not UTF-8 at byte {error.start} of the line (0x{line[error.start]:02x}, {error.reason}). '
        'Convert the file, or pass --errors=replace to put U+FFFD there and count it'
      )
  return ''
