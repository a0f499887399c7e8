"""Parquet, read with pyarrow, which is optional: a record a document, one column its text.

Dots lead into structs, `a.b.c`.
"""

from collections.abc import Iterator
from typing import IO, Any

from bertjax.errors import UserError
from bertjax.text.formats import Reading, Said, joined
from bertjax.text.left_out import Wrong, wrong_with

_RECORDS = 1000  # that are in memory at once


def documents(raw: IO[bytes], reading: Reading) -> Iterator[tuple[bytes, Said]]:
  """Yields the text of each record, and the columns that it has. Raises UserError: pyarrow is
  missing, a damaged file, no column of this name with strings; a record without text that may not
  be left out."""
  try:
    import pyarrow
    import pyarrow.compute
    from pyarrow import parquet
  except ModuleNotFoundError as error:
    raise UserError(
      f'{reading.path}: Parquet needs a package that is not installed: pip install pyarrow'
    ) from error
  try:
    file = parquet.ParquetFile(raw)
    _check_column(file, reading)
    also = [name for name in reading.columns if name in file.schema_arrow.names]
    number = 0
    for batch in file.iter_batches(_RECORDS, columns=[reading.field, *also]):
      said = {name: batch.column(name).to_pylist() for name in also}
      for i, text in enumerate(_bytes(pyarrow, batch, reading.field)):
        number += 1
        wrong = wrong_with(text or b'', reading.errors)
        if text is None or wrong:
          place = f'{reading.path}, record {number}'
          reading.left_out.refuse(place, wrong or Wrong('no text'))
        else:
          yield text, {name: joined(value[i]) for name, value in said.items()}
  except (pyarrow.ArrowException, OSError) as error:
    if isinstance(error, OSError) and error.errno is not None:
      raise
    raise UserError(f'{reading.path} is damaged or no Parquet: {error}') from error


def _check_column(file: Any, reading: Reading) -> None:
  columns = [file.schema.column(i) for i in range(len(file.schema))]
  strings = [column.path for column in columns if column.physical_type == 'BYTE_ARRAY']
  if reading.field not in strings:
    raise UserError(
      f'{reading.path} has no column {reading.field!r} of strings; those it has are '
      f'{", ".join(map(repr, strings)) or "none"}: name one with --field'
    )


def _bytes(pyarrow: Any, batch: Any, field: str) -> list[bytes | None]:
  """Returns the values of a column as they lie in the file, UTF-8 or not."""
  if field in batch.schema.names:
    column = batch.column(field)
  else:
    first, *rest = field.split('.')
    column = batch.column(first)
    for name in rest:
      column = pyarrow.compute.struct_field(column, name)
  if pyarrow.types.is_dictionary(column.type):
    column = column.dictionary_decode()
  return column.cast(pyarrow.large_binary()).to_pylist()
