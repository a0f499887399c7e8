"""Records of tables, by the names of their columns: TSV, CSV and JSON lines, compressed or not, and
examples of TFDS (`datasets`) and of seqio Tasks.

TSV has no quotes: what stands between TABs is the field, as GLUE's files have it.
"""

import csv
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bertjax import json_files
from bertjax.errors import UserError, amount, nearest, require_file
from bertjax.examples.labelled.common import datasets
from bertjax.machine import checksums, copies
from bertjax.text import compressed, kinds
from bertjax.text.files import read_lines
from bertjax.text.formats.records import csv_rows
from bertjax.text.left_out import MAX_DOCUMENT

TABLES = (kinds.TSV, kinds.CSV, kinds.JSON)
TASKS = 'seqio:'  # how the names of Tasks begin
LONGEST = 2**32  # bytes of a line that may be a whole file
OBJECT = 'a JSON object on each line (`jq -c .[]` makes that of an array)'


class Record(NamedTuple):
  """One line of a table, or one example."""

  place: str  # file and line, for messages
  values: Mapping[str, Any]  # column -> what stands there


def read(
  path: str, columns: Sequence[str], header: Sequence[str] | None = None
) -> Iterator[Record]:
  """Yields the records of a file, .tsv, .csv, .json or .jsonl, perhaps .gz, .xz, .bz2 or .zst, or
  of tfds:NAME:SPLIT or seqio:MODULE:NAME:SPLIT; every one has these columns. `header` has the names
  of the columns of a table whose first line has none, None if the config has no key for it; a line
  that has all of `columns` is the header all the same, as GLUE's test files have one where the
  others do not."""
  if by_name(path):
    yield from _examples(path, columns)
    return
  file = existing(path)
  kind = kinds.check(file)
  if kind not in TABLES:
    raise UserError(f'{path}: expected .tsv, .csv or .jsonl, got {kind}')
  if kind == kinds.JSON:
    yield from _objects(file, lines(file), columns)
  else:
    yield from _rows(file, lines(file), kind, columns, header)


def string(record: Record, name: str) -> str:
  """Returns the text of a column; UserError with the line where it is none."""
  value = record.values[name]
  if not isinstance(value, str):
    raise UserError(f'{record.place}: expected a string in {name!r}, got {value!r}')
  return value


def by_name(path: str) -> bool:
  """Returns True if the path names a TFDS data set or a seqio Task, not a file."""
  return path.startswith((datasets.PREFIX, TASKS))


def existing(path: str) -> pathlib.Path:
  """Returns the file of that name, on this machine; UserError if there is none."""
  file = copies.local(path)
  require_file(file, 'labelled examples')
  return file


def sha256(path: str) -> str:
  """Returns the sha256 of a file; '' of one that is not there, or of a data set by its name."""
  file = None if by_name(path) else copies.local(path)
  return checksums.of_file(file) if file and file.is_file() else ''


def lines(file: pathlib.Path) -> Iterator[str]:
  """Yields the lines of a file with their line feeds; raises as `read_lines`."""
  return (line.decode('utf-8') for line in read_lines(file))


def _examples(path: str, columns: Sequence[str]) -> Iterator[Record]:
  if path.startswith(TASKS):
    from bertjax.examples.seqio_tasks import task_columns

    found = task_columns.examples(path)
  else:
    found = datasets.examples(path)
  for number, values in enumerate(found, 1):
    place = f'{path}, example {number}'
    _check(place, values, columns)
    yield Record(place, values)


def whole(file: pathlib.Path) -> Any:
  """Returns what a JSON file of one value holds, however long; raises as `parsed`."""
  with file.open('rb') as raw:
    return parsed(b''.join(compressed.lines(file, raw, LONGEST)))


def parsed(text: str | bytes, **options: Any) -> Any:
  """Parses JSON text; the options go to `json.loads`. Raises ValueError also for an escape of half
  a surrogate pair (\\ud83d), as text that was cut within an emoji has: UTF-8 cannot encode it."""
  if isinstance(text, bytes):
    text = text.decode(json.detect_encoding(text))
  value = json_files.loads(text, **options)
  if '\\ud' in text.lower():
    try:
      json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
      around = error.object[max(error.start - 20, 0) : error.end]
      raise ValueError(
        f'half of a surrogate pair, which is no text, at the end of {around!r}'
      ) from error
  return value


def _objects(file: pathlib.Path, lines: Iterator[str], columns: Sequence[str]) -> Iterator[Record]:
  for number, line in enumerate(lines, 1):
    if not line.strip():
      continue
    place = f'{file}, line {number}'
    try:
      value = parsed(line, object_pairs_hook=_once)
    except ValueError as error:
      raise UserError(f'{place}: expected {OBJECT}, got {line[:60]!r} ({error})') from error
    if not isinstance(value, dict):
      raise UserError(f'{place}: expected {OBJECT}, got {line[:60]!r}')
    _check(place, value, columns)
    yield Record(place, value)


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
  found = dict(pairs)
  if len(found) < len(pairs):
    raise ValueError('a key is there twice')
  return found


def _rows(
  file: pathlib.Path,
  lines: Iterator[str],
  kind: str,
  columns: Sequence[str],
  header: Sequence[str] | None,
) -> Iterator[Record]:
  if kind == kinds.CSV:
    rows = csv_rows(lines, MAX_DOCUMENT)
  else:
    rows = ((n, line.rstrip('\r\n').split('\t')) for n, line in enumerate(lines, 1))
  names: Sequence[str] = ()
  for number, row in rows:
    if isinstance(row, csv.Error):
      raise UserError(f'{file}, line {number}: expected CSV, got {row}')
    if not row or (row == [''] and len(names) != 1):  # where one column is all, it is empty
      continue
    place = f'{file}, line {number}'
    if not names:
      own = not header or {*columns} <= {*row}
      names = header if header and not own else row
      if kind == kinds.CSV and len(names) == 1 and ';' in names[0] and names[0] not in columns:
        raise UserError(f'{place}: expected columns with commas between them, got {names[0]!r}')
      remedy = '' if header is None else '; without a header, name them in config.data.task.header'
      _check(place, dict.fromkeys(names), columns, remedy)
      if twice := [name for name in columns if names.count(name) > 1]:
        raise UserError(f'{place}: the column {twice[0]!r} is there twice: expected it once')
      if own:
        continue
    if len(row) != len(names):
      expected = amount(len(names), 'columns')
      raise UserError(f'{place}: expected {expected}, got {len(row)}: {names}')
    yield Record(place, dict(zip(names, row, strict=True)))


def _check(place: str, found: Mapping[str, Any], columns: Sequence[str], remedy: str = '') -> None:
  for column in columns:
    if column not in found:
      there = f'{", ".join(map(repr, found))}{nearest(column, found)}{remedy}'
      raise UserError(f'columns of {place}: expected {column!r} among them, got {there}')
