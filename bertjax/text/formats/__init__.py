"""Formats of files: each module turns the lines of a file, or the file, into documents."""

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from bertjax.text.left_out import LeftOut

Said = dict[str, str]  # column -> its value, of what a file says of a document


class Reading(NamedTuple):
  """A file, and the options for reading it."""

  path: pathlib.Path  # path of the file
  errors: str  # 'strict' or 'replace', for bytes that are not UTF-8
  field: str  # name of the field that holds the text
  columns: Sequence[str]  # further fields to read, where the file has them
  left_out: LeftOut  # counts and names the lines and records that are wrong, or refuses them


def joined(value) -> str:
  """Returns a column's value: a string, a number, or a list of them, one for each line; '' of
  none."""
  if value is None:
    return ''
  return ' '.join(map(str, value)) if isinstance(value, list) else str(value)
