"""Columns written piece by piece to plain `.npy` files, in memory that does not grow with them."""

import collections
import os
import pathlib
from collections.abc import Iterable

import numpy as np

from bertjax.errors import UserError


class Column:
  """One `.npy` file of rank 1, appended to."""

  def __init__(self, path: pathlib.Path, dtype: np.dtype):
    self._file = open(path, 'wb')
    self._dtype = np.dtype(dtype)
    self.count = 0
    self._write_header()

  def append(self, value_n: np.ndarray) -> None:
    """Appends values of the column's own dtype."""
    if value_n.dtype != self._dtype:
      raise UserError(f'{self._file.name}: expected dtype {self._dtype}, got {value_n.dtype}')
    self._file.write(np.ascontiguousarray(value_n).data)
    self.count += len(value_n)

  def close(self) -> None:
    """Completes the header and forces the file to disk."""
    self._file.seek(0)
    self._write_header()
    self._file.flush()
    os.fsync(self._file.fileno())
    self._file.close()

  def _write_header(self):
    # NumPy pads the header so that the count of a growing first axis always fits in place.
    header = dict(descr=self._dtype.str, fortran_order=False, shape=(self.count,))
    np.lib.format.write_array_header_1_0(self._file, header)


def write_columns(
  directory: pathlib.Path, pieces: Iterable[tuple[dict[str, np.ndarray], dict[str, int]]]
) -> dict[str, int]:
  """Writes pieces, (columns, counts) of the same names and dtypes, to `directory/NAME.npy`; returns
  the sum of the counts."""
  files: dict[str, Column] = {}
  total: collections.Counter[str] = collections.Counter()
  try:
    for columns, counts in pieces:
      for name, value_n in columns.items():
        if name not in files:
          files[name] = Column(directory / f'{name}.npy', value_n.dtype)
        files[name].append(value_n)
      total.update(counts)
  finally:
    for file in files.values():
      file.close()
  return dict(total)


def join_columns(
  pieces: Iterable[tuple[dict[str, np.ndarray], dict[str, int]]],
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
  """Returns pieces of columns as one, in memory, and the sum of their counts."""
  parts: dict[str, list[np.ndarray]] = {}
  total: collections.Counter[str] = collections.Counter()
  for columns, counts in pieces:
    for name, value_n in columns.items():
      parts.setdefault(name, []).append(value_n)
    total.update(counts)
  return {name: np.concatenate(part) for name, part in parts.items()}, dict(total)
