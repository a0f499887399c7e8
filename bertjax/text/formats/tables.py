"""CSV and TSV with a header: a record a document, one column of which is its text.

CSV may quote, also over several lines (RFC 4180). TSV has no quotes: what stands between TABs is
the field.
"""

import csv
from collections.abc import Iterable, Iterator

from bertjax.errors import UserError
from bertjax.text import left_out as left_out_lib
from bertjax.text.formats import Reading, Said
from bertjax.text.left_out import Wrong


def csv_documents(lines: Iterable[bytes], reading: Reading) -> Iterator[tuple[bytes, Said]]:
  """Yields the text of each record of CSV, and the columns that it has. Raises UserError: no column
  of this name; a record that is wrong and may not be left out."""
  # Bytes that are not UTF-8 come back from the surrogates as they were.
  texts = (line.decode('utf-8', 'surrogateescape') for line in lines)
  yield from _documents(csv_rows(texts, left_out_lib.MAX_DOCUMENT + 1), reading)


def tsv_documents(lines: Iterable[bytes], reading: Reading) -> Iterator[tuple[bytes, Said]]:
  """Yields the text of each record of TSV, and its columns; see `csv_documents`."""
  rows = (line.decode('utf-8', 'surrogateescape').rstrip('\r\n').split('\t') for line in lines)
  yield from _documents(enumerate(rows, 1), reading)


def csv_rows(lines: Iterable[str], longest: int) -> Iterator[tuple[int, list[str] | csv.Error]]:
  """Yields the line in which a record begins, and its fields or what is wrong with it.

  Args:
    longest: characters of a field, at most.
  """
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


def _documents(rows, reading: Reading) -> Iterator[tuple[bytes, Said]]:
  _, names = next(rows, (1, []))
  if isinstance(names, csv.Error):
    raise UserError(f'{reading.path}, line 1: expected a header, got no CSV ({names})')
  column = _column(names, reading)
  also = {name: names.index(name) for name in reading.columns if name in names}
  for number, row in rows:
    if not row or row == ['']:
      continue  # a blank line
    place = f'{reading.path}, line {number}'
    if isinstance(row, csv.Error):
      reading.left_out.refuse(place, Wrong(f'no CSV ({row})'))
      continue
    if len(row) != len(names):
      what = f'{len(row)} fields, but {len(names)} columns in the header'
      reading.left_out.refuse(place, Wrong(what))
      continue
    text = row[column].encode('utf-8', 'surrogateescape')
    wrong = left_out_lib.wrong_with(text, reading.errors)
    if wrong:
      reading.left_out.refuse(place, wrong)
    else:
      yield text, {name: row[i] for name, i in also.items()}


def _column(names: list[str], reading: Reading) -> int:
  """Returns the number of the column that holds the text."""
  if names.count(reading.field) != 1:
    shown = ', '.join(map(repr, names[:20]))[:300] or 'nothing'
    hint = ' (fields are set apart by commas, not semicolons)' if ';' in shown else ''
    raise UserError(
      f'{reading.path}: expected a header with one column {reading.field!r}, got {shown}{hint}. '
      'Name the column with --field; a file without a header needs one as its first line'
    )
  return names.index(reading.field)
