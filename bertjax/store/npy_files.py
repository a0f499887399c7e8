"""Columns written piece by piece to plain `.npy` files, in memory that does not grow with them."""

import collections
import contextlib
import os
import pathlib
from collections.abc import Iterable
from typing import IO

import numpy as np

from bertjax.errors import UserError


def write_columns(
  directory: pathlib.Path, pieces: Iterable[tuple[dict[str, np.ndarray], dict[str, int]]]
) -> dict[str, int]:
  """Writes pieces, (columns, counts) of the same names and dtypes, to `directory/NAME.npy`; returns
  the sum of the counts. The files are whole, and on the disk, at the end."""
  total: collections.Counter[str] = collections.Counter()
  dtypes: dict[str, np.dtype] = {}
  lengths: collections.Counter[str] = collections.Counter()
  with contextlib.ExitStack() as stack:
    files: dict[str, IO[bytes]] = {}

    def write_header(name: str) -> None:
      # NumPy pads the header so that the count of a growing first axis always fits in place.
      header = dict(descr=dtypes[name].str, fortran_order=False, shape=(lengths[name],))
      np.lib.format.write_array_header_1_0(files[name], header)

    for columns, counts in pieces:
      for name, value_n in columns.items():
        if name not in files:
          files[name] = stack.enter_context(open(directory / f'{name}.npy', 'wb'))
          dtypes[name] = value_n.dtype
          write_header(name)
        if value_n.dtype != dtypes[name]:
          raise UserError(f'{name}: expected dtype {dtypes[name]}, got {value_n.dtype}')
        files[name].write(np.ascontiguousarray(value_n).data)
        lengths[name] += len(value_n)
      total.update(counts)
    for name, file in files.items():
      file.seek(0)
      write_header(name)
      file.flush()
      os.fsync(file.fileno())
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
