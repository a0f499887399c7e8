"""Files of text to documents: plain text and JSON lines, compressed or not. Bytes in, bytes out.

Plain text: a blank line ends a document, except between `<doc ...>` and `</doc>` lines, where it
ends a paragraph. JSON lines (.json, .jsonl): an object a line, its text field a document.
"""

import dataclasses
import functools
import glob
import gzip
import json
import logging
import lzma
import pathlib
import re
import zlib
from collections.abc import Iterator
from typing import IO

MAX_DOCUMENT = 8 * 2**20  # bytes; bounds the memory of `prepare`
_DOC = re.compile(rb'<doc(\s[^>]*)?>\s*')
_DOC_END = re.compile(rb'</doc>\s*')
_JSON = re.compile(r'\.jsonl?(\.gz|\.xz)?')
_BOM = b'\xef\xbb\xbf'


def find_files(pattern: str) -> list[pathlib.Path]:
  """The files of a comma list of paths and globs, each pattern's sorted.

  Raises:
    ValueError: a pattern matches no file.
  """
  found = []
  for part in pattern.split(','):
    names = sorted(glob.glob(part.strip(), recursive=True))
    files = [path for path in map(pathlib.Path, names) if path.is_file()]
    if not files:
      raise ValueError(
        f'no file matches {part.strip()!r}: expected text files (.txt, .jsonl, with .gz or .xz), '
        'a glob in quotes, tfds:NAME, or the name of a seqio Task or Mixture (yours with --module)'
      )
    found += files
  return found


@dataclasses.dataclass
class Files:
  """Text files, read as a stream of documents.

  Attributes:
    paths: in order.
    errors: 'strict' refuses bytes that are not UTF-8; 'replace' leaves them to whoever decodes.
    field: of JSON lines, which holds the text.
    done: bytes of the files read so far, compressed as they lie on disk.
  """

  paths: list[pathlib.Path]
  errors: str
  field: str
  done: int = 0

  @functools.cached_property
  def total(self) -> int:
    """Bytes of all files."""
    return sum(path.stat().st_size for path in self.paths)

  @property
  def fingerprint(self) -> list[dict]:
    """Path, size and modification time in nanoseconds of every file."""
    stats = [(path.resolve(), path.stat()) for path in self.paths]
    return [dict(path=str(p), size=s.st_size, mtime_ns=s.st_mtime_ns) for p, s in stats]

  def __iter__(self) -> Iterator[bytes]:
    """Yields the documents of all files.

    Raises:
      ValueError: bytes that are not UTF-8, a damaged archive, a JSON line without its text; file
        and place are named.
    """
    finished = 0
    for path in self.paths:
      with open(path, 'rb') as raw:
        lines = _lines(path, raw, self.errors)
        read = _json_documents if _JSON.search(path.name.lower()) else _text_documents
        for document in read(path, lines, self.field, self.errors):
          self.done = finished + raw.tell()
          yield document
      finished += path.stat().st_size
      self.done = finished


def _lines(path: pathlib.Path, raw: IO[bytes], errors: str) -> Iterator[bytes]:
  """The lines of a file with their line feeds, checked to be UTF-8 where errors are strict."""
  opener = {'.gz': gzip.open, '.xz': lzma.open}.get(path.suffix.lower())
  file = opener(raw, 'rb') if opener else raw
  offset = 0
  try:
    while line := file.readline(MAX_DOCUMENT + 1):
      if len(line) > MAX_DOCUMENT:
        raise ValueError(
          f'{path}: the line at byte {offset} is longer than {MAX_DOCUMENT} bytes: break it up'
        )
      if errors == 'strict' and not line.isascii():
        _check_utf8(path, line, offset)
      yield line if offset else line.removeprefix(_BOM)
      offset += len(line)
  except (EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error) as error:
    raise ValueError(
      f'{path} is damaged or cut short after {offset} bytes of text: {error}'
    ) from error


def _check_utf8(path: pathlib.Path, line: bytes, offset: int) -> None:
  try:
    line.decode('utf-8')
  except UnicodeDecodeError as error:
    raise ValueError(
      f'{path} is not UTF-8 at byte {offset + error.start} of its text '
      f'(0x{line[error.start]:02x}, {error.reason}). Convert the file, or pass --errors=replace '
      'to put U+FFFD there and count it'
    ) from error


def _text_documents(path, lines, field, errors) -> Iterator[bytes]:
  tagged, parts, size = False, [], 0
  for line in lines:
    opens, closes = _DOC.fullmatch(line), _DOC_END.fullmatch(line)
    blank = not tagged and not line.strip()
    full = size + len(line) > MAX_DOCUMENT
    if parts and (opens or closes or blank or full):
      if full:
        logging.warning('%s: a document of more than %d bytes is cut', path, MAX_DOCUMENT)
      yield b''.join(parts)
      parts, size = [], 0
    tagged = bool(opens) or (tagged and not closes)
    if not (opens or closes or blank):
      parts.append(line)
      size += len(line)
  if parts:
    yield b''.join(parts)


def _json_documents(path, lines, field, errors) -> Iterator[bytes]:
  for number, line in enumerate(lines, 1):
    if not line.strip():
      continue
    try:
      # Bytes that are not UTF-8 come back from the surrogates as they were.
      text = json.loads(line.decode('utf-8', 'surrogateescape'))[field]
      yield text.encode('utf-8', 'surrogateescape' if errors == 'replace' else 'strict')
    except (ValueError, KeyError, TypeError, AttributeError) as error:
      raise ValueError(
        f'{path}, line {number}: expected a JSON object with a string {field!r}, got {line[:60]!r} '
        f'({type(error).__name__}: {error}). Name another field with --field'
      ) from error
