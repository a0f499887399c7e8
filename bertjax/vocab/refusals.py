"""Errors about the files of a vocabulary, turned into mistakes of the user: no UTF-8, no JSON, a
piece that comes twice, and what tokenizers and sentencepiece refuse. Errors of ours pass."""

import contextlib
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

from bertjax import json_files
from bertjax.errors import UserError


def text_of(file: pathlib.Path, encoding: str = 'utf-8') -> str:
  """Returns the text of a file. Raises UserError if it is not UTF-8."""
  try:
    return file.read_text(encoding=encoding)
  except UnicodeDecodeError as error:
    raise UserError(f'{file.name} is not UTF-8: {error}') from error


@contextlib.contextmanager
def theirs() -> Iterator[None]:
  """Stands around what tokenizers and sentencepiece make of a file. Raises UserError if they refuse
  it. Rust raises bare Exception, which nothing of ours does, and C++ RuntimeError."""
  try:
    yield
  except Exception as error:
    if type(error) not in (Exception, RuntimeError):
      raise
    raise UserError(str(error)) from error


@contextlib.contextmanager
def panics(file: pathlib.Path) -> Iterator[None]:
  """Stands around what tokenizers encode. Raises UserError where Rust panics, as it does where a
  regular expression gives up; its error is no Exception and goes through no pipe."""
  try:
    yield
  except BaseException as error:
    if type(error).__name__ != 'PanicException':
      raise
    raise UserError(
      f'{file} gives up on a text: {error}. Expected patterns without a repetition in a '
      'repetition, as in (a+)+: mend them, or name another vocabulary'
    ) from None


def check_unique(pieces: Iterable[str]) -> None:
  """Raises UserError if a piece comes twice; both entries, counted from 1, are named."""
  index: dict[str, int] = {}
  for number, piece in enumerate(pieces, 1):
    before = index.setdefault(piece, number)
    if before != number:
      raise UserError(f'{piece!r} is entry {before} and again entry {number}: expected it once')


def unique_keys(text: str) -> Any:
  """Returns a JSON value, in whose objects every key comes once. Raises UserError if it is none, or
  a key comes twice; both places are named."""
  try:
    return json_files.loads(text, object_pairs_hook=_object)
  except UserError:
    raise
  except ValueError as error:
    raise UserError(f'no JSON: {error}') from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  found = dict(pairs)
  if len(found) < len(pairs):
    check_unique(key for key, _ in pairs)
  return found
