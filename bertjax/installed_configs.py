"""Where --config=configs/NAME.py is outside a checkout: beside the installed package."""

import pathlib

FOLDER = pathlib.Path(__file__).resolve().parents[1] / 'configs'


def located(argv: list[str]) -> list[str]:
  """The arguments, with the value of --config as a path that can be opened, if there is one.

  `configs/NAME.py[:ARGUMENT]` is NAME.py of FOLDER where the current directory has no such file;
  a path of the user's own stays as it is.
  """
  return [_located(value, before) for value, before in zip(argv, ['', *argv], strict=False)]


def _located(value: str, before: str) -> str:
  flag, equals, path = value.partition('=') if value.startswith('-') else (before, '', value)
  name, colon, argument = path.partition(':')
  file = FOLDER.parent / name
  if flag not in ('-config', '--config') or pathlib.Path(name).exists():
    return value
  if file.parent != FOLDER or not file.exists():
    return value
  return value.removesuffix(path) + f'{file}{colon}{argument}'
