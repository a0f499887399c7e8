"""Sizes and sha256 of files as they were written, and the check of a file against them."""

import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any


def digest(value: Any) -> str:
  """sha256 of a value that JSON can hold."""
  return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def of_file(path: pathlib.Path) -> str:
  """sha256 of a file's bytes."""
  with open(path, 'rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()


def fault(path: pathlib.Path, size: int, sha256: str, reads: bool = True) -> str:
  """Returns what is wrong with a file: '' if it is what was written.

  Args:
    size: in bytes, as it was.
    reads: whether to read the file from end to end; without it the size alone is compared.
  """
  try:
    if (got := path.stat().st_size) != size:
      return f'{path}: expected {size} bytes, got {got}'
    if reads and (found := of_file(path)) != sha256:
      return f'{path}: expected sha256 {str(sha256)[:12]}, got {found[:12]}'
  except OSError as error:
    return f'{path}: expected {size} bytes, got none: {error.strerror}'
  return ''


def faults(directory: pathlib.Path, files: Mapping[str, Sequence], reads: bool = True) -> list[str]:
  """Returns what is wrong with the files of a directory.

  Args:
    files: name -> (bytes, sha256).
    reads: as of `fault`.
  """
  found = [fault(directory / name, *sealed, reads=reads) for name, sealed in files.items()]
  return [said for said in found if said]
