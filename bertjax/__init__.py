"""bertjax: pretraining of the BERT family, and `bertjax.Model`, which uses what was trained."""

import itertools
import re
import signal
import sys
from typing import TYPE_CHECKING, Any

if sys.version_info < (3, 11):  # noqa: UP036  (of a checkout, where pip has not looked)
  sys.exit(f'bertjax: expected Python 3.11 or newer, got {sys.version.split()[0]}')


def _shown(kind: Any, error: Any, trace: Any) -> None:
  """Says in a line that a package is lacking; shows other errors as Python does."""
  while trace and trace.tb_next:
    trace = trace.tb_next
  file = trace.tb_frame.f_code.co_filename if trace else ''
  of_users = not file.startswith(__path__[0]) and '-packages/' not in file
  name = getattr(error, 'name', None) or 'bertjax'
  if kind is not ModuleNotFoundError or of_users or name.startswith('bertjax'):
    return sys.__excepthook__(kind, error, error.__traceback__)
  print(
    f'bertjax: {name.partition(".")[0]} is not installed for {sys.executable}: activate the '
    'environment that has it (. .venv/bin/activate), or python -m pip install -r requirements.txt',
    file=sys.stderr,
  )  # fmt: skip


def _module() -> str:
  """Returns what `python -m` was given."""
  for word, after in itertools.pairwise([*sys.orig_argv, '']):
    if found := re.fullmatch(r'-[^XWm-]*m(.*)', word):
      return found[1] or after
  return ''


# As the package of `python -m bertjax.X`, and not of another whose package imports this one.
_COMMAND = sys.argv[:1] == ['-m'] and _module().partition('.')[0] == 'bertjax'
if _COMMAND:
  sys.excepthook = _shown

# Python looks for the module of `python -m bertjax.X`, whose imports may take seconds: until its
# door (errors.py) Ctrl-C ends the process without a traceback, as it ends a program in C.
if _COMMAND and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
  signal.signal(signal.SIGINT, signal.SIG_DFL)

if TYPE_CHECKING:
  from bertjax.use.model import Model as Model

__all__ = ['Model']
__version__ = '0.2.0'  # pyproject.toml reads it here; CHANGELOG.md has the same


def __getattr__(name: str) -> Any:
  """`bertjax.Model`, imported when it is asked for: jax and the models take seconds."""
  if name != 'Model':
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  from bertjax.errors import root_logger_as_it_is

  with root_logger_as_it_is():
    from bertjax.use.model import Model

  return Model


def __dir__() -> list[str]:
  return [*__all__, '__version__']
