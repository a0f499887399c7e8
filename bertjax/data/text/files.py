"""Files of text to documents: plain text and JSON lines, compressed or not. Bytes in, bytes out.

A file may have a language, `en=wiki/*.txt`; parallel text has two, in two files of as many lines,
`en-de=train.en+train.de`, or in the first two columns of one, `en-de=train.tsv`: each pair of lines
is a document. Plain text: a blank line ends a document, except between `<doc ...>` and `</doc>`
lines, where it ends a paragraph; verbatim, nothing ends one. JSON lines (.json, .jsonl): an object
a line, its text field a document.
"""

import contextlib
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
from collections.abc import Iterator, Sequence
from typing import IO, NamedTuple

from bertjax.data.text import documents as documents_lib
from bertjax.errors import UserError

MAX_DOCUMENT = 8 * 2**20  # bytes; bounds the memory of `prepare`
_BLOCK = 2**16  # bytes of verbatim text that go together, where that is no more than a hundredth
_DOC = re.compile(rb'<doc(\s[^>]*)?>\s*')
_DOC_END = re.compile(rb'</doc>\s*')
_JSON = re.compile(r'\.jsonl?(\.gz|\.xz)?')
_BOM = b'\xef\xbb\xbf'
_LANGUAGE = re.compile(r'\s*([A-Za-z]\w*(?:-[A-Za-z]\w*)?)=(.+)')
_TSV = re.compile(r'\.tsv(\.gz|\.xz)?', re.IGNORECASE)


class Source(NamedTuple):
  """Files that are read one after the other, or parallel text.

  Attributes:
    paths: of files; of parallel text the two sides, or one with columns.
    language: as in `records`; '' where it is not said.
  """

  paths: list[pathlib.Path]
  language: str = ''


def find_sources(pattern: str) -> list[Source]:
  """The sources of a comma list of paths and globs, each with or without its language.

  Raises:
    UserError: a pattern matches no file; a language is said for some only; parallel text is not
      two files or one with columns, or its sides have different numbers of lines.
  """
  found = []
  for part in pattern.split(','):
    match = _LANGUAGE.fullmatch(part)
    if not match:
      found.append(Source(find_files(part)))
    elif '-' in match[1]:
      found.append(_parallel(*match.groups()))
    else:
      found.append(Source(find_files(match[2]), match[1]))
  without = [str(source.paths[0]) for source in found if not source.language]
  if 0 < len(without) < len(found):
    raise UserError(
      f'{without[0]} has no language, but other files have: expected LANGUAGE={without[0]}, or no '
      'language at all'
    )
  return found


def _parallel(name: str, pattern: str) -> Source:
  sides = [find_files(part) for part in pattern.split('+')]
  paths = [path for side in sides for path in side]
  if len(paths) != len(sides) or len(paths) != 2 - bool(_TSV.search(paths[0].name)):
    raise UserError(
      f'{name}={pattern}: expected parallel text, two files joined by + or one .tsv, got '
      f'{len(paths)} files. The name of one language has no hyphen: write zh_cn for zh-cn'
    )
  if len(paths) == 2:
    counts = [sum(1 for _ in read_lines(path)) for path in paths]
    if counts[0] != counts[1]:
      raise UserError(
        f'parallel text needs as many lines on both sides: {paths[0]} has {counts[0]}, {paths[1]} '
        f'has {counts[1]}. Align the files line by line'
      )
  return Source(paths, name.replace('-', documents_lib.PARALLEL))


def find_files(pattern: str) -> list[pathlib.Path]:
  """The files of a comma list of paths and globs, each pattern's sorted.

  Raises:
    UserError: a pattern matches no file.
  """
  found = []
  for part in pattern.split(','):
    names = sorted(glob.glob(part.strip(), recursive=True))
    files = [path for path in map(pathlib.Path, names) if path.is_file()]
    if not files:
      raise UserError(
        f'no file matches {part.strip()!r}: expected text files (.txt, .jsonl, with .gz or .xz), '
        'a glob in quotes, tfds:NAME, or the name of a seqio Task or Mixture (yours with --module)'
      )
    found += files
  return found


@dataclasses.dataclass
class Files:
  """Text files, read as a stream of documents.

  Attributes:
    sources: in order.
    errors: 'strict' refuses bytes that are not UTF-8; 'replace' leaves them to whoever decodes.
    field: of JSON lines, which holds the text.
    columns: of the records to make, as in `records`. `language` comes from the sources where they
      say it; else, like `role`, from a field of JSON lines.
    verbatim: whether plain text is one stream: its lines, blank ones too, come in blocks of 64 KiB
      or a hundredth of all files, so that a share of them can be held out.
    done: bytes of the files read so far, compressed as they lie on disk.
  """

  sources: list[Source]
  errors: str
  field: str
  columns: Sequence[str] = ()
  verbatim: bool = False
  done: int = 0

  @property
  def paths(self) -> list[pathlib.Path]:
    """All files."""
    return [path for source in self.sources for path in source.paths]

  @property
  def languages(self) -> list[str]:
    """Those that the sources name, in the order of their first mention."""
    names = [
      name for s in self.sources for name in s.language.split(documents_lib.PARALLEL) if name
    ]
    return list(dict.fromkeys(names))

  @functools.cached_property
  def total(self) -> int:
    """Bytes of all files."""
    return sum(path.stat().st_size for path in self.paths)

  @property
  def fingerprint(self) -> list[dict]:
    """Path, size, modification time in nanoseconds and, where said, language of every file."""
    files = [(path, source.language) for source in self.sources for path in source.paths]
    stats = [(path.resolve(), path.stat(), language) for path, language in files]
    return [
      dict(path=str(p), size=s.st_size, mtime_ns=s.st_mtime_ns)
      | (dict(language=language) if language else {})
      for p, s, language in stats
    ]

  def __iter__(self) -> Iterator[bytes]:
    """Yields the records of all files.

    Raises:
      UserError: bytes that are not UTF-8, a damaged archive, a JSON line without its text, a line
        without its columns; file and place are named.
    """
    finished = 0
    for source in self.sources:
      if documents_lib.PARALLEL in source.language:
        reads = [(source.paths, _pairs(source.paths, self.errors))]
      else:
        reads = [([path], self._read(path)) for path in source.paths]
      for paths, read in reads:
        for text, said, at in read:
          self.done = finished + at
          values = said | (dict(language=source.language) if source.language else {})
          yield documents_lib.join(text, [values.get(name, '') for name in self.columns])
        finished += sum(path.stat().st_size for path in paths)
        self.done = finished

  def _read(self, path: pathlib.Path) -> Iterator[tuple[bytes, dict[str, str], int]]:
    """Yields (text, what is said of it, bytes of the file read so far)."""
    with open(path, 'rb') as raw:
      lines = _lines(path, raw, self.errors)
      if _JSON.search(path.name.lower()):
        documents = _json_documents(path, lines, (self.field, *self.columns), self.errors)
      else:
        if self.verbatim:
          texts = map(b''.join, documents_lib.blocks(lines, min(_BLOCK, self.total // 100)))
        else:
          texts = _text_documents(path, lines)
        documents = ((text, {}) for text in texts)
      for text, said in documents:
        yield text, said, raw.tell()


def read_lines(path: pathlib.Path) -> Iterator[bytes]:
  """Yields the lines of a file, compressed or not, with their line feeds.

  Raises:
    UserError: it is not UTF-8, or a damaged archive.
  """
  with open(path, 'rb') as raw:
    yield from _lines(path, raw, 'strict')


def _lines(path: pathlib.Path, raw: IO[bytes], errors: str) -> Iterator[bytes]:
  """The lines of a file with their line feeds, checked to be UTF-8 where errors are strict."""
  opener = {'.gz': gzip.open, '.xz': lzma.open}.get(path.suffix.lower())
  file = opener(raw, 'rb') if opener else raw
  offset = 0
  try:
    while line := file.readline(MAX_DOCUMENT + 1):
      if len(line) > MAX_DOCUMENT:
        raise UserError(
          f'{path}: the line at byte {offset} is longer than {MAX_DOCUMENT} bytes: break it up'
        )
      if errors == 'strict' and not line.isascii():
        _check_utf8(path, line, offset)
      yield line if offset else line.removeprefix(_BOM)
      offset += len(line)
  except (EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error) as error:
    raise UserError(
      f'{path} is damaged or cut short after {offset} bytes of text: {error}'
    ) from error


def _check_utf8(path: pathlib.Path, line: bytes, offset: int) -> None:
  try:
    line.decode('utf-8')
  except UnicodeDecodeError as error:
    raise UserError(
      f'{path} is not UTF-8 at byte {offset + error.start} of its text '
      f'(0x{line[error.start]:02x}, {error.reason}). Convert the file, or pass --errors=replace '
      'to put U+FFFD there and count it'
    ) from error


def _pairs(paths, errors) -> Iterator[tuple[bytes, dict[str, str], int]]:
  """Yields the pairs of lines of parallel text, each pair as two lines."""
  with contextlib.ExitStack() as stack:
    raws = [stack.enter_context(open(path, 'rb')) for path in paths]
    sides = [_lines(path, raw, errors) for path, raw in zip(paths, raws, strict=True)]
    for number, lines in enumerate(zip(*sides, strict=True), 1):
      pair = [line.strip(b'\r\n') for line in lines]
      if len(paths) == 1:
        pair = pair[0].split(b'\t')[:2]
        if len(pair) < 2:
          raise UserError(
            f'{paths[0]}, line {number}: expected two columns with a TAB between them, got '
            f'{lines[0][:60]!r}'
          )
      yield b'\n'.join(pair), {}, sum(raw.tell() for raw in raws)


def _text_documents(path, lines) -> Iterator[bytes]:
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


def _json_documents(path, lines, fields, errors) -> Iterator[tuple[bytes, dict[str, str]]]:
  field, *columns = fields
  for number, line in enumerate(lines, 1):
    if not line.strip():
      continue
    try:
      # Bytes that are not UTF-8 come back from the surrogates as they were.
      value = json.loads(line.decode('utf-8', 'surrogateescape'))
      text = value[field].encode('utf-8', 'surrogateescape' if errors == 'replace' else 'strict')
      said = {name: _joined(value[name]) for name in columns if name in value}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
      raise UserError(
        f'{path}, line {number}: expected a JSON object with a string {field!r}, got {line[:60]!r} '
        f'({type(error).__name__}: {error}). Name another field with --field'
      ) from error
    yield text, said


def _joined(value) -> str:
  """A column's value: a string, a number, or a list of them, one for each line."""
  return ' '.join(map(str, value)) if isinstance(value, list) else str(value)
