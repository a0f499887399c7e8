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
  with path.open('rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()


def fault(path: pathlib.Path, size: int, sha256: str, reads: bool = True) -> str:
  """Returns the fault of a file of which size in bytes and sha256 are known; '' if there is none.
  Without `reads` the size alone is compared."""
  try:
    if (got := path.stat().st_size) != size:
      return f'{path}: expected {size} bytes, got {got}'
    if reads and (found := of_file(path)) != sha256:
      return f'{path}: expected sha256 {str(sha256)[:12]}, got {found[:12]}'
  except OSError as error:
    return f'{path}: expected {size} bytes, got none: {error.strerror}'
  return ''


def faults(directory: pathlib.Path, files: Mapping[str, Sequence], reads: bool = True) -> list[str]:
  """Returns the faults of the files of a directory, name -> (bytes, sha256), as `fault` does."""
  found = [fault(directory / name, *sealed, reads=reads) for name, sealed in files.items()]
  return [said for said in found if said]
