"""Errors about the files of a vocabulary, turned into mistakes of the user; errors of ours pass."""

import contextlib
import json
import pathlib
from collections.abc import Iterator
from typing import Any

from bertjax.errors import UserError


def text_of(file: pathlib.Path, encoding: str = 'utf-8') -> str:
  """Returns the text of a file. Raises UserError if it is not UTF-8."""
  try:
    return file.read_text(encoding=encoding)
  except UnicodeDecodeError as error:
    raise UserError(f'{file.name} is not UTF-8: {error}') from error


def json_of(text: str, **options: Any) -> Any:
  """Returns a JSON value. Raises UserError if it is none."""
  try:
    return json.loads(text, **options)
  except UserError:
    raise
  except (ValueError, RecursionError) as error:
    raise UserError(f'no JSON: {error}') from error


@contextlib.contextmanager
def theirs() -> Iterator[None]:
  """Stands around what tokenizers and sentencepiece make of a file. Raises UserError: they refuse
  it. Rust raises bare Exception, which nothing of ours does, and C++ RuntimeError."""
  try:
    yield
  except Exception as error:
    if type(error) not in (Exception, RuntimeError):
      raise
    raise UserError(str(error)) from error
