"""Formats of files: each module turns the lines of a file, or the file, into documents."""

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from bertjax.text.left_out import LeftOut

Said = dict[str, str]  # column -> its value, of what a file says of a document


class Reading(NamedTuple):
  """A file, and the options for reading it.

  Attributes:
    path: path of the file.
    errors: 'strict' or 'replace', for bytes that are not UTF-8.
    field: name of the field that holds the text.
    columns: further fields to read, where the file has them.
    left_out: counts and names the lines and records that are wrong, or refuses them.
  """

  path: pathlib.Path
  errors: str
  field: str
  columns: Sequence[str]
  left_out: LeftOut


def joined(value) -> str:
  """A column's value: a string, a number, or a list of them, one for each line; '' of none."""
  if value is None:
    return ''
  return ' '.join(map(str, value)) if isinstance(value, list) else str(value)
