"""Kinds of files: chosen by the file's name, and checked against its first bytes."""

import contextlib
import csv
import itertools
import pathlib
import re

from bertjax.errors import UserError, warn_once
from bertjax.text import compressed

TEXT, JSON, CSV, TSV, PARQUET = 'text', 'JSON lines', 'CSV', 'TSV', 'Parquet'
_KINDS = {
  '.txt': TEXT, '.text': TEXT, '.json': JSON, '.jsonl': JSON, '.ndjson': JSON,
  '.csv': CSV, '.tsv': TSV, '.parquet': PARQUET,
}  # fmt: skip
NAMES = f'{", ".join(_KINDS)}; compressed .gz, .xz, .bz2, .zst'

_HEAD = 2**16  # bytes
_WIKI = re.compile(r'wiki_\d+')  # how WikiExtractor names its files
_JSON = re.compile(rb'\s*(\{\s*["}]|\[\s*[{\["])')
_NAME = re.compile(r'[\w .-]{1,40}(?<!\.)')  # of a column
_CONVERT = 'expected UTF-8. Convert it: iconv -f {0} -t UTF-8 {1} > NEW'
_PACKED = 'is compressed: give it a name that ends with '
# How files begin that are no text -> what to say of them; the first that fits.
_OTHERS = {
  b'\xff\xfe\0\0': 'is UTF-32: ' + _CONVERT.format('UTF-32', '{}'),
  b'\0\0\xfe\xff': 'is UTF-32: ' + _CONVERT.format('UTF-32', '{}'),
  b'\xff\xfe': 'is UTF-16: ' + _CONVERT.format('UTF-16', '{}'),
  b'\xfe\xff': 'is UTF-16: ' + _CONVERT.format('UTF-16', '{}'),
  b'\x1f\x8b': _PACKED + '.gz', b'\xfd7zXZ\0': _PACKED + '.xz',
  b'BZh91AY&SY': _PACKED + '.bz2', b'\x28\xb5\x2f\xfd': _PACKED + '.zst',
  b'PAR1': 'is Parquet: give it a name that ends with .parquet',
  b'PK\x03\x04': 'is a zip archive: unpack it',
  b'%PDF-': 'is a PDF: extract its text',
  b'\x93NUMPY': 'is an array of NumPy: write its text to a file',
  b'SQLite format 3': 'is a database of SQLite: export its text',
}  # fmt: skip


def kind_of(path: pathlib.Path) -> str | None:
  """TEXT, JSON, CSV, TSV or PARQUET by the file's name; None where the name does not say."""
  plain = path.with_suffix('') if compressed.suffix(path) else path
  if _WIKI.fullmatch(plain.name):
    return TEXT
  return _KINDS.get(plain.suffix.lower())


def check(path: pathlib.Path, lines: bool = False) -> str:
  """Returns the kind of a file by its name, TEXT where nothing says otherwise, and with `lines`;
  one called text that looks like something else is logged. UserError: UTF-16, lines that end with
  CR alone, an archive, an unnamed table, JSON or bytes that are no text."""
  kind = TEXT if lines else kind_of(path)
  if kind == PARQUET:
    if compressed.suffix(path):
      raise UserError(f'{path}: Parquet is compressed inside; unpack the file')
    return PARQUET
  head = compressed.head(path, _HEAD)
  _check_bytes(path, head)
  if kind is None:
    _check_unnamed(path, head)
  elif kind == TEXT and not lines and (looks := _looks_like(head)):
    warn_once(
      f'{path} looks like {looks[0]} and is read as plain text, by its name; to be read as '
      f'that it needs a name that ends with {looks[1]}'
    )
  return kind or TEXT


def _check_bytes(path: pathlib.Path, head: bytes) -> None:
  for magic, said in _OTHERS.items():
    if head.startswith(magic):
      raise UserError(f'{path} {said.format(path)}')
  if head[257:262] == b'ustar':
    raise UserError(f'{path} is a tar archive: unpack it, and name the folder')
  # Letters of most scripts leave every second byte of UTF-16 empty.
  if len(head) > 3 and head.count(0) > 0.2 * len(head):
    remedy = _CONVERT.format('UTF-16', path)
    raise UserError(f'{path} is UTF-16 or UTF-32 without a mark: {remedy}')
  if b'\r' in head and b'\n' not in head:
    raise UserError(
      f'{path} ends its lines with CR alone, as old Macs did: expected LF or CRLF. Convert it: '
      f"tr '\\r' '\\n' < {path} > NEW"
    )


def _check_unnamed(path: pathlib.Path, head: bytes) -> None:
  """Refuses what would be taken for text although it looks like something else."""
  if b'\0' in head:
    raise UserError(
      f'{path} holds bytes that are no text (a NUL at byte {head.index(0)}): expected {NAMES}'
    )
  if looks := _looks_like(head):
    raise UserError(
      f'{path} looks like {looks[0]}, but its name does not say so: give it a name that ends with '
      f'{looks[1]}, or with .txt if it is to be read as plain text'
    )


def _looks_like(head: bytes) -> tuple[str, str] | None:
  """Guesses what a file holds and how its name should end; None: plain text."""
  if _JSON.match(head):
    return 'JSON', '.jsonl'
  rows = [row for row in head.decode('utf-8', 'replace').split('\n') if row.strip()]
  tables = (('\t', 'TSV', '.tsv'), (',', 'CSV', '.csv'))
  return next(((name, end) for mark, name, end in tables if _is_table(rows, mark)), None)


def _is_table(rows: list[str], delimiter: str) -> bool:
  """Returns True if at least three rows have equally many fields and the first, short names."""
  table = []
  with contextlib.suppress(csv.Error):  # where the last record is cut
    table.extend(itertools.islice(csv.reader(rows, delimiter=delimiter, strict=True), 20))
  width = len(table[0]) if len(table) > 2 else 0
  same = all(len(row) == width for row in table[:-1])  # the last may be cut
  return width > 1 and same and all(_NAME.fullmatch(name) for name in table[0])
