"""A mistake of the user, or a path that the system refuses, which is shown as one line; every other
error keeps its traceback.

Every command runs in `door`, whose first lines are all that it does before the heavy imports:

  if __name__ == '__main__':
    with door('bertjax.vocab'):
      command_line.run(main, 'bertjax.vocab')
"""

import contextlib
import difflib
import errno
import functools
import importlib
import os
import pathlib
import select
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, NoReturn

from bertjax import children

_ANOTHER = 'name another path, or change who may read and write there'
_NO_DIRECTORY = (
  'a file, or a link that leads nowhere, is there where a directory is due: name another path'
)
# Number of an error of the system that a path or its disk may have -> the remedy.
_OF_A_PATH = {
  errno.ENOSPC: 'make room, or name a path on another disk',
  errno.EDQUOT: 'make room within the quota, or name a path on another disk',
  errno.EFBIG: 'raise the limit (ulimit -f), or name a path on another disk',
  errno.EROFS: 'name a path on a disk that can be written to',
  errno.ENOENT: 'name a path that is there, or whose directory is',
  errno.EACCES: _ANOTHER,
  errno.EPERM: _ANOTHER,
  errno.EEXIST: _NO_DIRECTORY,
  errno.ENOTDIR: _NO_DIRECTORY,
  errno.EISDIR: 'a directory is there where a file is due: name another path',
  errno.ENAMETOOLONG: 'name a shorter path',
  errno.ELOOP: 'mend the links, or name another path',
}
_OF_A_NAME = (errno.ENOENT, errno.EACCES, errno.EPERM)  # that tell nothing without the path
_MEMORY = (
  'There is too little memory: take fewer or shorter rows at once. Of a run, '
  '--config.microbatches=2 leaves the batch as it is, else lower --config.batch_size or '
  '--config.length; --config.model.remat=light or full keeps less of each layer; '
  'python -m bertjax.preflight says what a step needs'
)
_LOST = (  # Gloo is how processes on CPUs speak with each other
  'Another process of the run has ended, or cannot be reached any more: see its output; the same '
  'command goes on from the last checkpoint'
)


class UserError(ValueError):
  """A mistake of the user: the message says what was expected, what it got, and the remedy."""


def choose(name: str, options: Iterable[str], what: str) -> str:
  """Returns `name`, if it is one of the options. Raises UserError if it is none of them, with the
  key `what`; says which there are and which is nearest."""
  options = sorted(options)
  if name in options:
    return name
  said = f'{what}: expected one of {", ".join(options)}, got {name!r}'
  raise UserError(f'{said}{nearest(str(name), options)}')


def nearest(name: str, options: Iterable[str]) -> str:
  """Returns the end of a message about a name that is none of the options: which is spelled most
  like it; '' where none is."""
  near = difflib.get_close_matches(name, list(options), 1)
  return f'; did you mean {near[0]!r}?' if near else ''


def require_file(path: pathlib.Path, expected: str, once: bool = False) -> None:
  """Raises UserError where there is no file to be read more than once, or with `once` nothing to be
  read at all; `expected` is what it should hold."""
  if not path.exists():
    raise absent(path, expected)
  if path.is_dir():
    raise UserError(f'{path} is a folder: expected {expected}')
  if not (once or path.is_file()):
    kind = 'a pipe' if path.is_fifo() else 'a device or a socket'
    raise UserError(
      f'{path} is {kind}, which gives its content once, and that is read more than once: write it '
      f'to a file, cat {path} > FILE, and name that'
    )


def absent(path: os.PathLike[str], expected: str) -> UserError:
  """Returns the error for a path where nothing is: a link on its way may lead nowhere."""
  for link in (pathlib.Path(path), *pathlib.Path(path).parents):
    if link.is_symlink() and not link.exists():
      led = os.readlink(link)
      return UserError(f'{link} is a link to {led}, which leads to no file: mend it or remove it')
  return UserError(f'there is no file {path}: expected {expected}')


def amount(number: float, things: str) -> str:
  """Returns a number of things, whose noun is given in the plural, with an s that the singular has
  not: 1 text, 2,000 texts."""
  said = f'{number:g}' if isinstance(number, float) else f'{number:,}'
  return f'{said} {things[:-1] if number == 1 else things}'


def package(name: str, what: str, install: str = '') -> Any:
  """Imports a package that not everybody has. Raises UserError: `what` needs it, and it is not
  installed, or broken; `install` is what brings it, where that has another name."""
  try:
    return importlib.import_module(name)
  except ModuleNotFoundError as error:
    raise UserError(
      f'{what} needs {error.name or name}, which is not installed: pip install {install or name}'
    ) from error
  except ImportError as error:
    raise UserError(f'{what} needs {name}, which cannot be imported: {error}') from error


def warn(line: str, *values: Any) -> None:
  """Logs a warning, `line % values`. `logging.warning` would also give a root logger without a
  handler one, and in somebody's own program `logging.basicConfig` would do nothing any more."""
  import logging  # slow for a door

  logging.getLogger(__name__).warning(line, *values, stacklevel=2)


@functools.cache
def warn_once(line: str) -> None:
  """Logs a warning; a text is read more than once, and several plans meet the same obstacle."""
  warn('%s', line)


@contextlib.contextmanager
def root_logger_as_it_is() -> Iterator[None]:
  """Takes back the handler that absl, by which orbax logs, gives a root logger without one: in
  somebody's own program `logging.basicConfig` would do nothing any more."""
  import logging  # slow for a door

  before = logging.root.handlers[:]
  try:
    yield
  finally:
    logging.root.handlers[:] = before


@contextlib.contextmanager
def door(program: str) -> Iterator[None]:
  """Runs a command: ends a user's mistake, a full or read-only disk or another path that the system
  refuses, and Ctrl-C, in one line each; ends without a word if nobody reads its output any more
  (`| head`).

  Before the door, from the first lines of bertjax/__init__.py on, Ctrl-C ends the process without a
  word. In the 0.05 s before that, while Python itself starts, Ctrl-C shows Python's own traceback.

  The C++ code of TensorFlow, XLA and CUDA prints nothing while it is loaded, unless
  TF_CPP_MIN_LOG_LEVEL asks for it; so import the modules that load them inside the door.

  Args:
    program: name of the command, e.g. 'bertjax.prepare'.
  """
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  # Python removes what a second Ctrl-C leaves of worker processes, but warns of it.
  os.environ.setdefault('PYTHONWARNINGS', 'ignore:resource_tracker')
  children.follow_parent()
  try:
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # of a shell's background job
      signal.signal(signal.SIGINT, functools.partial(_interrupt, program))
    sys.unraisablehook = functools.partial(_unraisable, program, sys.unraisablehook)
    with _read():
      yield
  except (OSError, UserError) as error:
    said = str(error)
    if isinstance(error, OSError):
      remedy = _OF_A_PATH.get(error.errno or 0)
      if remedy is None or (error.errno in _OF_A_NAME and not error.filename):
        raise
      where = f'{error.filename}: ' if error.filename else ''
      said = f'{where}{error.strerror}: {remedy}'
    _log_traceback()
    sys.exit(f'{program}: {said}')
  except KeyboardInterrupt:
    _leave(program)
  except (MemoryError, RuntimeError) as error:
    # Of a device; XLA says this word of a core's fast memory, too, which no batch size mends.
    full = str(error).startswith('RESOURCE_EXHAUSTED: Out of memory')
    if not (full or 'Gloo' in str(error) or isinstance(error, MemoryError)):
      raise
    _log_traceback()
    said = str(error).partition('\n')[0].rstrip('.') or 'Out of memory'
    sys.exit(f'{program}: {said}. {_LOST if "Gloo" in said else _MEMORY}')


def _log_traceback() -> None:
  import logging  # slow for a door

  logging.getLogger(__name__).debug('traceback of the error below', exc_info=True)  # --verbosity=1


@contextlib.contextmanager
def _read() -> Iterator[None]:
  """Ends a command whose stdout nobody reads any more (`| head`) as the shell's own end: without a
  word, by the code of SIGPIPE. Another pipe or connection that breaks is an error as before."""
  try:
    try:
      yield
    finally:
      sys.stdout.flush()  # else Python does at its end, where it can only complain
  except BrokenPipeError:
    stdout = select.poll()
    stdout.register(sys.stdout, 0)
    if not stdout.poll(0):  # no error of its own
      raise
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(128 + signal.SIGPIPE)


def _interrupt(program: str, number: int, frame: FrameType | None) -> None:
  """Ctrl-C: raises KeyboardInterrupt, so that what is open is closed. While a module is being
  imported it ends the process at once: C code that is being set up makes an ImportError of a
  KeyboardInterrupt, or crashes."""
  del number
  while frame is not None:
    if frame.f_code.co_filename.startswith('<frozen importlib'):
      _leave(program)
    frame = frame.f_back
  raise KeyboardInterrupt


def _unraisable(program: str, before: Callable[[Any], object], raised: Any) -> None:
  """Takes what Python can only show, with its traceback, before it goes on: Ctrl-C too, where it
  comes within a callback of the garbage collector. jax has one."""
  if isinstance(raised.exc_value, KeyboardInterrupt):
    _leave(program)
  if str(raised.exc_value) != 'Event loop is closed':  # of a save that has failed and said so
    before(raised)


def _leave(program: str) -> NoReturn:
  for stream in (sys.stdout, sys.stderr):
    # Within a write of the same stream Python refuses another; nobody may read it, either.
    with contextlib.suppress(RuntimeError, BrokenPipeError):
      stream.flush()
  os.write(2, f'\n{program}: interrupted\n'.encode())
  # Not sys.exit: it would wait for the threads that build batches and write checkpoints, and a
  # second Ctrl-C would print their tracebacks. Whatever is half-written goes at the next start.
  os._exit(130)


def is_foreign(error: BaseException) -> bool:
  """Returns True if an error was raised in the code of a package, whose error classes for bad input
  are many, and not in a line of ours.

  A call of ours with a wrong argument raises in our line. So does Rust or C++ code, which
  leaves no line of its own: callers know it by the class of the error.
  """
  trace = error.__traceback__
  while trace and trace.tb_next:
    trace = trace.tb_next
  name = trace.tb_frame.f_globals.get('__name__', '') if trace else ''
  return name.partition('.')[0] != __name__.partition('.')[0]


@contextlib.contextmanager
def writing(what: str, path: object) -> Iterator[None]:
  """Names what was being written, as in 'while writing WHAT', and where, in an OSError: a full disk
  says neither. A file that the error itself names is kept; '' is what its path says. Raises OSError
  of the same number, with both."""
  try:
    yield
  except OSError as error:
    said, where = error.strerror or str(error), error.filename or path
    said += f', while writing {what}' if what else ''
    raise OSError(error.errno or 0, said, str(where)) from error
