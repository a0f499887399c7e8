"""Files of records, a document each: JSON lines, CSV, TSV, Parquet, and parallel text.

One field is the text. Dots lead into the objects of JSON and the structs of Parquet, `a.b.c`. CSV
and TSV have a header; CSV may quote, also over several lines (RFC 4180), TSV has no quotes.
"""

import csv
import functools
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from bertjax import json_files
from bertjax.errors import UserError, amount, package
from bertjax.text import compressed, kinds
from bertjax.text import left_out as left_out_lib
from bertjax.text.left_out import LeftOut, Wrong, wrong_with

Said = dict[str, str]  # column -> its value, of what a file says of a document
Record = tuple[int, bytes | Wrong, Said]  # number of the line or record, its text or fault, columns
_HALF = re.compile('[\ud800-\udc7f\udd00-\udfff]')  # but what stands for bytes that are not UTF-8
_AT_ONCE = 1000  # records of Parquet in memory


class Reading(NamedTuple):
  """A file, and the options for reading it."""

  path: pathlib.Path  # path of the file
  errors: str  # 'strict' or 'replace', for bytes that are not UTF-8
  field: str  # name of the field that holds the text
  columns: Sequence[str]  # further fields to read, where the file has them
  left_out: LeftOut  # counts and names the lines and records that are wrong, or refuses them


def documents(kind: str, source: Any, reading: Reading) -> Iterator[tuple[bytes, Said]]:
  """Yields the text of each record of a file's lines, or of an opened Parquet file, and the columns
  that it has. Raises UserError if no column is the text, for a damaged file or a missing package,
  and for a wrong record that may not be left out."""
  unit = 'record' if kind == kinds.PARQUET else 'line'
  for number, text, said in _RECORDS[kind](source, reading):
    if isinstance(text, Wrong):
      reading.left_out.refuse(f'{reading.path}, {unit} {number}', text)
    else:
      yield text, said


def _json(lines: Iterable[bytes], reading: Reading) -> Iterator[Record]:
  for number, line in enumerate(lines, 1):
    if line.strip():
      yield number, *_object(line, reading)


def _object(line: bytes, reading: Reading) -> tuple[bytes | Wrong, Said]:
  if wrong := wrong_with(line, reading.errors):
    return wrong, {}
  try:
    # Bytes that are not UTF-8 come back from the surrogates as they were.
    value = json_files.loads(line.decode('utf-8', 'surrogateescape'))
    text = _find(value, reading.field)
    said = {name: _joined(value[name]) for name in reading.columns if name in value}
    if reading.errors != 'replace':
      return text.encode(), said
    return _HALF.sub('\ufffd', text).encode('utf-8', 'surrogateescape'), said
  except UnicodeEncodeError as error:
    half = error.object[error.start]
    what = f'expected text, got half of a surrogate pair, {half!r}, as where an emoji was cut'
    return Wrong(what, 'Mend the line', 'pass --errors=replace'), {}
  except (ValueError, KeyError, TypeError, AttributeError) as error:
    what = f'expected a JSON object with a string {reading.field!r}, got {line[:60]!r} ({error})'
    return Wrong(what, _remedy(line)), {}


def _find(value, field: str):
  """Returns the value of a field; where no field is called so, dots lead into the objects in it."""
  whole = isinstance(value, dict) and field in value
  for name in [field] if whole else field.split('.'):
    if not isinstance(value, dict):
      raise TypeError(f'{value!r:.60} is no object')
    if name not in value:
      raise ValueError(f'the fields are {", ".join(map(repr, value))[:300] or "none"}')
    value = value[name]
  if not isinstance(value, str):
    raise TypeError(f'it is {value!r:.60}')
  return value


def _joined(value) -> str:
  """Returns a column's value: a string, a number or a list of them, one a line; '' of none."""
  if value is None:
    return ''
  return ' '.join(map(str, value)) if isinstance(value, list) else str(value)


def _remedy(line: bytes) -> str:
  if line.strip() in (b'{', b'['):
    return 'One value over many lines is not read: make lines of it, e.g. with jq -c'
  if line.lstrip().startswith(b'['):
    return "An array is not read: make lines of it, e.g. with jq -c '.[]'"
  return 'Name another field with --field, a.b.c where it lies in objects'


def csv_rows(lines: Iterable[str], longest: int) -> Iterator[tuple[int, list[str] | csv.Error]]:
  """Yields the line in which a record begins, and its fields, of at most so many characters, or
  what is wrong with it."""
  csv.field_size_limit(longest)
  rows = csv.reader(lines, strict=True)
  while True:
    number = rows.line_num + 1
    try:
      row = next(rows, None)
    except csv.Error as error:
      yield number, error
      continue
    if row is None:
      return
    yield number, row


def _table(lines: Iterable[bytes], reading: Reading, quoted: bool) -> Iterator[Record]:
  """Yields the records of CSV, which is `quoted`, or TSV."""
  texts = (line.decode('utf-8', 'surrogateescape') for line in lines)
  rows: Iterator[tuple[int, Any]] = (
    csv_rows(texts, left_out_lib.MAX_DOCUMENT + 1)
    if quoted
    else enumerate((text.rstrip('\r\n').split('\t') for text in texts), 1)
  )
  _, names = next(rows, (1, []))
  if isinstance(names, csv.Error):
    raise UserError(f'{reading.path}, line 1: expected a header, got no CSV ({names})')
  if names.count(reading.field) != 1:
    shown = ', '.join(map(repr, names[:20]))[:300] or 'nothing'
    hint = ' (fields are set apart by commas, not semicolons)' if ';' in shown else ''
    raise UserError(
      f'{reading.path}: expected a header with one column {reading.field!r}, got {shown}{hint}. '
      'Name the column with --field; a file without a header needs one as its first line'
    )
  column = names.index(reading.field)
  also = {name: names.index(name) for name in reading.columns if name in names}
  for number, row in rows:
    if isinstance(row, csv.Error):
      yield number, Wrong(f'no CSV ({row})'), {}
    elif row and row != [''] and len(row) != len(names):
      has = amount(len(row), 'fields')
      yield number, Wrong(f'{has}, but {amount(len(names), "columns")} in the header'), {}
    elif row and row != ['']:  # no blank line
      text = row[column].encode('utf-8', 'surrogateescape')
      yield number, wrong_with(text, reading.errors) or text, {n: row[i] for n, i in also.items()}


def _parquet(raw: Any, reading: Reading) -> Iterator[Record]:
  pyarrow = package('pyarrow', f'{reading.path}: Parquet')
  try:
    file = package('pyarrow.parquet', 'Parquet').ParquetFile(raw)
    _check_column(file, reading)
    also = [name for name in reading.columns if name in file.schema_arrow.names]
    number = 0
    for batch in file.iter_batches(_AT_ONCE, columns=[reading.field, *also]):
      columns = {name: batch.column(name).to_pylist() for name in also}
      for i, text in enumerate(_bytes(batch, reading.field)):
        number += 1
        found = Wrong('no text') if text is None else wrong_with(text, reading.errors) or text
        yield number, found, {name: _joined(values[i]) for name, values in columns.items()}
  except (pyarrow.ArrowException, OSError) as error:
    raise compressed.damaged(reading.path, 'is damaged or no Parquet', error) from error


def _check_column(file: Any, reading: Reading) -> None:
  columns = [file.schema.column(i) for i in range(len(file.schema))]
  strings = [column.path for column in columns if column.physical_type == 'BYTE_ARRAY']
  if reading.field not in strings:
    raise UserError(
      f'{reading.path} has no column {reading.field!r} of strings; those it has are '
      f'{", ".join(map(repr, strings)) or "none"}: name one with --field'
    )


def _bytes(batch: Any, field: str) -> list[bytes | None]:
  """Returns the values of a column as they lie in the file, UTF-8 or not."""
  import pyarrow

  first, *rest = [field] if field in batch.schema.names else field.split('.')
  column = batch.column(first)
  if rest:
    column = package('pyarrow.compute', 'Parquet').struct_field(column, rest)
  if pyarrow.types.is_dictionary(column.type):
    column = column.dictionary_decode()
  return column.cast(pyarrow.large_binary()).to_pylist()


_RECORDS: dict[str, Callable[[Any, Reading], Iterator[Record]]] = {
  kinds.JSON: _json,
  kinds.CSV: functools.partial(_table, quoted=True),
  kinds.TSV: functools.partial(_table, quoted=False),
  kinds.PARQUET: _parquet,
}


def pairs(
  sides: Sequence[Iterator[bytes]], paths: Sequence[pathlib.Path], errors: str, left_out: LeftOut
) -> Iterator[bytes]:
  """Yields parallel text, documents of two lines: the lines of two files as long, or the first two
  columns of one TSV without a header. Raises UserError for a line that is no text or has no second
  column, unless `left_out` takes the pair."""
  for number, lines in enumerate(zip(*sides, strict=True), 1):
    wrongs = [wrong_with(line, errors) for line in lines]
    pair = [line.strip(b'\r\n') for line in lines]
    if len(pair) == 1:
      pair = pair[0].split(b'\t')[:2]
      if len(pair) < 2 and not wrongs[0]:
        wrongs[0] = Wrong(f'expected two columns with a TAB between them, got {lines[0][:60]!r}')
    wrong = next(((p, w) for p, w in zip(paths, wrongs, strict=True) if w), None)
    if wrong:
      left_out.refuse(f'{wrong[0]}, line {number}', wrong[1])
    else:
      yield b'\n'.join(pair)
