"""Models that lie elsewhere, by format: 'hf:DIR', 'tf1:PATH', 'fairseq:PATH'."""

import pathlib

from bertjax.convert import directory
from bertjax.convert.directory import Opened
from bertjax.errors import UserError, choose

FORMATS = dict(hf=directory.open_directory)


def is_source(text: str) -> bool:
  """Whether a text names a model by a format that we know."""
  return text.partition(':')[0] in FORMATS


def open_source(text: str, where: str) -> Opened:
  """Opens 'FORMAT:PATH'.

  Args:
    text: names the model.
    where: the key or flag that says it, for messages.

  Raises:
    UserError: no such format, nothing there, or nothing that we compute.
  """
  name, _, path = text.partition(':')
  reader = FORMATS[choose(name, FORMATS, f'the format of {where}')]
  if not pathlib.Path(path).exists():
    raise UserError(f'{where}: there is nothing at {path}')
  return reader(pathlib.Path(path))
