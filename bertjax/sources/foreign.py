"""Models that lie elsewhere, by format: hf:DIR, tf1:PATH, fairseq:PATH, transformer_xl:PATH,
fastai:PATH and bilm:PATH."""

import importlib
import pathlib
import re

from bertjax.errors import UserError, choose
from bertjax.formats import directory
from bertjax.formats.originals.original import Opening

# Format -> the module of originals that reads it; imported when it is asked for.
ORIGINALS = dict(
  tf1='tf1', fairseq='fairseq', transformer_xl='transformer_xl_torch', fastai='awd_lstm_torch',
  bilm='bilm',
)  # fmt: skip
FORMATS = ('hf', *ORIGINALS)
HUB = 'https://huggingface.co/'


def is_source(text: str) -> bool:
  """Returns whether a text is FORMAT:PATH with a format that can be read here."""
  return text.partition(':')[0] in FORMATS


def nothing_at(path: str, where: str) -> UserError:
  """Returns the error for a model that `where`, a key or flag, names, and which is not there; it
  may be a name of the hub."""
  name = path.removeprefix(HUB)
  hub = re.fullmatch(r'([\w-][\w.-]*/)?[\w-][\w.-]*', name)
  fetch = f'`hf download {name} --local-dir DIR` fetches one of {HUB}, and then it is hf:DIR'
  return UserError(
    f'{where}: there is nothing at {path}; expected the workdir of a run, or one of '
    f'{", ".join(f"{each}:PATH" for each in FORMATS)}{f". {fetch}" if hub else ""}'
  )


def open_source(text: str, where: str) -> Opening:
  """Opens 'FORMAT:PATH', which `where`, a key or flag, names. UserError: no such format, nothing
  there, or nothing that we compute."""
  name, _, path = text.partition(':')
  choose(name, FORMATS, f'the format of {where}')
  if name == 'hf':
    if not pathlib.Path(path).exists():
      raise nothing_at(path, where)
    return directory.open_directory(pathlib.Path(path))
  module = importlib.import_module(f'bertjax.formats.originals.{ORIGINALS[name]}')
  return module.open_checkpoint(pathlib.Path(path))
