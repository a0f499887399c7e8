"""bertjax: pretraining of the BERT family, and `bertjax.Model`, which uses what was trained."""

import signal
import sys

if sys.version_info < (3, 11):  # noqa: UP036  (of a checkout, where pip has not looked)
  sys.exit(f'bertjax: expected Python 3.11 or newer, got {sys.version.split()[0]}')

# Python looks for the module of `python -m bertjax.X`, whose imports may take seconds: until its
# door (errors.py) Ctrl-C ends the process without a traceback, as it ends a program in C.
if sys.argv[:1] == ['-m'] and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
  signal.signal(signal.SIGINT, signal.SIG_DFL)

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  from bertjax.use.model import Model as Model

__all__ = ['Model']
__version__ = '0.2.0'  # pyproject.toml reads it here; CHANGELOG.md has the same


def __getattr__(name: str) -> Any:
  """`bertjax.Model`, imported when it is asked for: jax and the models take seconds."""
  if name != 'Model':
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  from bertjax.use.model import Model

  return Model
