"""Access to gs://, s3:// and whatever else fsspec reads. Nothing else imports fsspec.

Paths that are read in place or of which little is asked; copies.py has what is kept on both sides.
"""

import contextlib
import ctypes
import email.utils
import errno
import importlib
import io
import logging
import os
import pathlib
import re
import shutil
import threading
import time
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from bertjax.errors import UserError, is_foreign, warn, warn_once

_URL = re.compile(r'([a-z][a-z0-9+.-]*)://.+')
_LOCAL = ('file', 'local')  # schemes of this machine
_EPOCH = 'Thu, 01 Jan 1970 00:00:00 GMT'
SAY_S, GIVE_UP_S = 30.0, 300.0  # without an answer
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # of a local disk
_BLOCK = 2**20  # bytes that a reader of text asks for
_REMEDY = (
  'pip install -r requirements-storage.txt brings gs:// and s3://, others have their own package'
)


def is_remote(text: str | os.PathLike[str]) -> bool:
  """Returns whether a path is a URL, SCHEME://..."""
  return isinstance(text, RemotePath) or _URL.fullmatch(os.fspath(text)) is not None


def require_local(text: str | os.PathLike[str] | None, name: str) -> None:
  """Refuses a URL, which would become a folder `gs:`, where only a local path can be written."""
  if text is not None and is_remote(text):
    raise UserError(f'{name}={text}: expected a local path, got a URL: write it here and copy it')


def path(text: str | os.PathLike[str]) -> 'pathlib.Path | RemotePath':
  """Returns a path that can be opened: pathlib's for a local one. Raises UserError: nothing that is
  installed reads its scheme."""
  if not is_remote(text):
    return pathlib.Path(text)
  at(os.fspath(text))
  return RemotePath(os.fspath(text))


class RemotePath(pathlib.PurePosixPath):
  """A file elsewhere, with what the readers of text ask of a pathlib.Path."""

  def __str__(self) -> str:
    scheme, _, rest = super().__str__().partition(':/')  # pathlib has made one slash of them
    slashes = '///' if scheme in _LOCAL else '//'
    return f'{scheme}:{slashes}{rest}'

  def __fspath__(self) -> str:
    return str(self)

  def open(self, mode: str = 'rb') -> IO[bytes]:
    """Opens it for reading; what is passed over is not fetched."""
    file_system, there = at(str(self))
    with explained(str(self)):
      return io.BufferedReader(file_system.open(there, mode), _BLOCK)

  def read_bytes(self) -> bytes:
    """Returns all of it."""
    with self.open() as file:
      return file.read()

  def exists(self) -> bool:
    """Returns whether there is a file, or a folder with files."""
    return bool(_info(str(self)))

  def receive(self, file: pathlib.Path) -> None:
    """Copies a local file here, where it appears whole or not at all."""
    file_system, there = at(str(self))
    with explained(str(self)) as callback:
      file_system.put_file(str(file), there, callback=callback)

  def is_file(self) -> bool:
    """Returns whether there is a file."""
    return _info(str(self)).get('type') == 'file'

  def resolve(self) -> 'RemotePath':
    """Itself: a URL is absolute."""
    return self

  def stat(self) -> 'Stat':
    """Size and time of the last change, 1970 where a web server does not say it. Raises UserError
    if there is no such file, or nobody knows its size."""
    file_system, there = at(str(self))
    with explained(str(self)):
      info = file_system.info(there)
      try:
        changed = file_system.modified(there)
      except NotImplementedError:  # of https://
        changed = email.utils.parsedate_to_datetime(info.get('Last-Modified', _EPOCH))
    if info['size'] is None:
      raise UserError(f'{self}: its server does not say how long it is: copy it here')
    return Stat(info['size'], int(changed.timestamp() * 1e9))


Place = pathlib.Path | RemotePath  # what `path` returns


class Stat(NamedTuple):
  """The two fields of os.stat_result that callers read."""

  st_size: int
  st_mtime_ns: int


def find(pattern: str) -> list[RemotePath]:
  """Returns the files of a URL, sorted: one, those that a glob matches, or all below a folder."""
  file_system, there = at(pattern)
  with explained(pattern):
    names = file_system.glob(there) if re.search(r'[*?\[]', there) else [there]
    files = [name for name in names if file_system.isfile(name)]
    found = files or [file for name in names for file in file_system.find(name)]
  if not found:
    _info(pattern)  # the others take a web server that refuses for one without the file
  return sorted(RemotePath(file_system.unstrip_protocol(name)) for name in found)


def _info(url: str) -> dict[str, Any]:
  """Returns what a server says of a file or a folder; {} where there is none."""
  file_system, there = at(url)
  with contextlib.suppress(_Nothing), explained(url):
    return file_system.info(there)
  return {}


def names(text: str | os.PathLike[str]) -> set[str]:
  """Returns the names of what is in a directory now; none where there is no such directory."""
  if not is_remote(text):
    return set(os.listdir(text)) if os.path.isdir(text) else set()
  file_system, there = at(os.fspath(text))
  with contextlib.suppress(_Nothing), explained(os.fspath(text)):
    file_system.invalidate_cache()
    return {found.rpartition('/')[2] for found in file_system.ls(there, detail=False)}
  return set()


def lists(folder: str, file: str) -> bool:
  """Returns whether the list of a folder has a file; a web server may keep it to itself, which is
  said."""
  try:
    listed = file in names(folder)
  except UserError as error:
    if getattr(error.__cause__, 'status', None) != 403:
      raise
    listed = False
  if not listed:
    warn_once(
      f'{folder} does not list its files, so {file} is read alone: if others belong to it, such as '
      'tokenizer_config.json or merges.txt, copy them all to a folder here'
    )
  return listed


def remove(text: str | os.PathLike[str]) -> None:
  """Removes a file, or a directory and all below it, if there is one."""
  if not is_remote(text):
    pathlib.Path(text).unlink() if os.path.isfile(text) else shutil.rmtree(text, True)
    return
  file_system, there = at(os.fspath(text))
  with contextlib.suppress(_Nothing), explained(os.fspath(text)):
    file_system.rm(there, recursive=True)


def at(url: str) -> tuple[Any, str]:
  """fsspec's file system of a URL, and the path in it. Raises UserError: nothing that is installed
  reads its scheme."""
  try:
    fsspec = importlib.import_module('fsspec')
    made, scheme = {}, url.partition(':')[0]
    if scheme in _LOCAL:
      made = dict(auto_mkdir=True)
    elif scheme in ('http', 'https'):  # by default all of a file has to come in five minutes
      timeout = importlib.import_module('aiohttp').ClientTimeout(None, sock_read=GIVE_UP_S)
      made = dict(client_kwargs=dict(timeout=timeout))
    found, there = fsspec.core.url_to_fs(url, **made)
  except (ImportError, ValueError) as error:
    said = str(error).partition('\n')[0]
    raise UserError(f'{url} cannot be read: {said}. {_REMEDY}; or give a local path') from error
  for package in ('gcsfs', 'fsspec'):  # which describe their caches at INFO
    logging.getLogger(package).setLevel(logging.WARNING)
  return found, there.rstrip('/')


class _Nothing(UserError):
  """There is no such file or folder."""


class _NoAnswer(BaseException):
  """Is raised in a thread that waits for a server; no package takes it for one of its own."""


class _Watch:
  """Says that a server does not answer this thread, and ends the wait: clients do after half an
  hour, without a word. fsspec waits in Python, a second at a time, where it can be ended."""

  def __init__(self, url: str):
    self._url, self._thread = url, threading.get_ident()
    self._over, self._lock = threading.Event(), threading.Lock()
    self.moved()

  def moved(self, *given: Any, **named: Any) -> None:
    """Notes that the server does answer."""
    self._since = time.monotonic()

  def __enter__(self) -> None:
    threading.Thread(target=self._look, daemon=True).start()

  def __exit__(self, *error: Any) -> None:
    with self._lock:
      self._over.set()

  def _look(self) -> None:
    while not self._over.wait(SAY_S):
      waited = time.monotonic() - self._since
      if waited >= SAY_S:
        warn('Waiting for %s, which has not answered for %d s', self._url, waited)
      with self._lock:
        if waited >= GIVE_UP_S and not self._over.is_set():
          error = ctypes.py_object(_NoAnswer)
          ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), error)
          return


@contextlib.contextmanager
def explained(url: str) -> Iterator[Any]:
  """Names the URL where it cannot be read or written, or does not answer; an error of our own lines
  passes. Yields fsspec's callback, which long transfers take: those that move go on."""
  watch = _Watch(url)
  callback = importlib.import_module('fsspec.callbacks').Callback(hooks=dict(moved=watch.moved))
  try:
    with watch:
      yield callback
  except _NoAnswer:
    raise UserError(
      f'{url} has not answered for {GIVE_UP_S:g} s: see that its server works and can be reached '
      'from here; the same command goes on'
    ) from None
  except UserError:
    raise
  except Exception as error:
    # Of https:// a file that is not found has whatever else went wrong as its cause.
    refused = isinstance(error, FileNotFoundError) and error.__cause__ or error
    if isinstance(refused, FileNotFoundError) or getattr(refused, 'status', None) == 404:
      raise _Nothing(f'there is nothing at {url}: expected a file, or files below it') from error
    on_disk = isinstance(error, OSError) and (error.filename is not None or error.errno in _FULL)
    if on_disk or not (isinstance(error, OSError) or is_foreign(error)):
      raise
    said = f'{type(refused).__name__}: {refused}'
    raise UserError(f'{url}: {said}; see that it exists and that you may use it') from error
