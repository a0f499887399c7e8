"""Files that are here and elsewhere, on gs://, s3:// or whatever else fsspec reads.

The program works on local files: it maps stores into memory, renames what is finished, appends
lines and locks. So what a URL names is

  read in place     text, once from its beginning to its end: remote.py
  copied here once  a store, a vocabulary, a run that is used: `local`
  made here         the store or vocabulary of a command, and sent when it is finished: `output`
  kept in step      the workdir of a run: mirror.py

Object stores have no rename and no empty directory. What must be whole or not there at all has a
marker, the file that says what is in it: it is sent last and removed first, and without it a
directory there is not read.
"""

import concurrent.futures
import contextlib
import fcntl
import json
import os
import pathlib
import re
import shutil
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from bertjax.errors import UserError, amount, writing
from bertjax.machine import remote

CACHE = 'BERTJAX_CACHE'  # environment: where `cache` is
_THREADS = 8  # transfers at a time
_WHOLE = 2**24  # bytes of a file that is read into memory to be sent
_PASSING = ('.part', '.tmp', '.copied', '.lock')  # files that are being written, and our own

Say = Callable[[str], None]  # shows a line


def to_stderr(line: str) -> None:
  """Shows a line where no output of a command is."""
  print(line, file=sys.stderr, flush=True)


def local(text: str | os.PathLike[str], say: Say = to_stderr, beside: bool = False) -> pathlib.Path:
  """Returns a local path with what is at a path: itself, or the copy of a URL, made once a host and
  gone on with where it broke off; of a file with `beside` also those of its folder. UserError:
  there is nothing, or it cannot be read."""
  if not remote.is_remote(text):
    return pathlib.Path(text)
  url = os.fspath(text).rstrip('/')
  found, there = remote.at(url)
  with remote.explained(url):
    folder, _, file = url.rpartition('/') if found.isfile(there) else (url, '', '')
  wanted = lambda name: not file or name == file or beside and '/' not in name
  copy = Copy(folder, 'copies', 1 if file else None)
  with copy.alone():
    together = not file or beside and remote.lists(folder, file)
    names = copy.pull(wanted, say, '' if together else file)
    copy.drop(wanted, names)
  here = copy.here / file
  if not names or not here.exists():
    raise UserError(f'there is nothing at {url}: expected a file, or files below it')
  return here


@contextlib.contextmanager
def output(text: str | os.PathLike[str], marker: str) -> Iterator[pathlib.Path]:
  """Yields the directory to make: the path itself, or of a URL a local directory with what is there
  already, which is sent when the context ends well, `marker`, the file that says what is in it,
  last. A UserError that names that directory names the URL."""
  if not remote.is_remote(text):
    yield pathlib.Path(text)
    return
  copy = Copy(os.fspath(text).rstrip('/'), 'copies')
  with copy.alone():
    there = copy.names()
    if not there:
      copy.forget(marker)
    if not marker or marker in there:
      copy.drop(lambda name: True, copy.pull(lambda name: True, to_stderr))
    try:
      yield copy.here
    except UserError as error:
      named = re.sub(rf'{re.escape(str(copy.here))}(?!\.)', lambda _: copy.url, str(error))
      raise UserError(named) from error
    copy.push(copy.here, '', last=marker, wanted=lambda name: not name.startswith('plans/'))
    to_stderr(f'Sent to {text}')


class Copy:
  """A directory `here` and its like elsewhere, at `url`. What both had when they were last equal is
  noted beside the one here, a line a file, so that only what has changed on one side is moved."""

  def __init__(self, url: str, kind: str, depth: int | None = None):
    """Names a directory elsewhere; the one here is in a folder of the cache, of this `kind`. Only
    so many levels of it are looked at."""
    self.url = url
    self._file_system, self._there = remote.at(url)
    self._depth = depth
    self.here = cache() / kind / url.replace('://', '/', 1)
    self._note = self.here.with_name(f'.{self.here.name}.copied')
    self._known = _read_note(self._note)
    self._lock = threading.Lock()

  @contextlib.contextmanager
  def alone(self) -> Iterator[None]:
    """Holds the directory here; another process of this host waits."""
    self.here.parent.mkdir(parents=True, exist_ok=True)
    with open(self.here.with_name(f'.{self.here.name}.lock'), 'a') as file:
      fcntl.flock(file, fcntl.LOCK_EX)
      self._known = _read_note(self._note)
      if self._note.exists():  # once a line a file is enough
        lines = [json.dumps(pair) + '\n' for pair in self._known.items()]
        self._note.with_suffix('.tmp').write_text(''.join(lines), encoding='utf-8')
        self._note.with_suffix('.tmp').replace(self._note)
      yield

  def names(
    self, below: str = '', wanted: Callable[[str], bool] = lambda name: True
  ) -> dict[str, tuple[str, int]]:
    """Returns the wanted files there: name -> (what changes with their content, bytes)."""
    with remote.explained(self.url):
      self._file_system.invalidate_cache()
      skip = len(self._there.rstrip('/')) + 1
      listed = self._file_system.find(self._at(below), maxdepth=self._depth, detail=True).items()
      found = {path: info for path, info in listed if path[skip:] and wanted(path[skip:])}
      for path, info in found.items():
        if info.get('size') is None:  # a web server lists names alone
          found[path] = self._file_system.info(path)
    files = {path[skip:]: info for path, info in found.items() if info['type'] == 'file'}
    for name, info in files.items():
      if name.startswith('/') or '..' in name.split('/'):
        raise UserError(f'{self.url} has a file {name!r}, whose copy would lie outside: remove it')
      if info['size'] is None:
        raise UserError(f'{self.url}/{name}: its server does not say how long it is: copy it here')
    return {name: (_token(info), info['size']) for name, info in files.items()}

  def pull(self, wanted: Callable[[str], bool], say: Say, below: str = '') -> Collection[str]:
    """Fetches the files that are not here, or other ones, below a folder or, with '', all; returns
    the names of those there."""
    there = self.names(below, wanted)
    stale = {name: seen for name, seen in there.items() if self._differs(name, seen[0])}
    if not stale:
      return there
    size = sum(size for _, size in stale.values())
    files = amount(len(stale), 'files')
    say(f'Copying {files}, {size / 1e6:,.1f} MB, of {self.url} to {self.here}')
    self._each(self._fetch, [(name, *seen) for name, seen in stale.items()])
    return there

  def forget(self, marker: str) -> None:
    """Removes what is here, if both had the marker once, '' always: it was sent, and is no more."""
    if marker and marker not in self._known:
      return
    shutil.rmtree(self.here, ignore_errors=True)
    self._note.unlink(missing_ok=True)
    self._known.clear()

  def drop(self, wanted: Callable[[str], bool], there: Collection[str]) -> None:
    """Removes here what came from there and is no more; what was made here stays."""
    for name in [name for name in self._known if wanted(name) and name not in there]:
      (self.here / name).unlink(missing_ok=True)

  def push(
    self,
    directory: pathlib.Path,
    below: str,
    last: str = '',
    wanted: Callable[[str], bool] = lambda name: True,
  ) -> None:
    """Sends the wanted files of a directory that are not below a folder there, or were other ones;
    `last` when all others are there, and an older one goes before they change."""
    there, jobs = self.names(below), {}
    for file in sorted(p for p in directory.rglob('*') if p.is_file()):
      name = file.relative_to(directory).as_posix()
      target = f'{below}/{name}' if below else name
      known = target in there and [there[target][0], *_seen(file)]
      if file.suffix not in _PASSING and wanted(name) and self._known.get(target) != known:
        jobs[name] = (file, target)
    marker = jobs.pop(last, None)
    if marker and marker[1] in there:
      self._remove(marker[1])
    self._each(self._send, jobs.values())
    if marker:
      self._send(*marker)

  def write(self, name: str, data: bytes) -> None:
    """Writes a file there."""
    with remote.explained(self.url):
      self._file_system.pipe_file(self._at(name), data)

  def read(self, name: str) -> bytes | None:
    """Reads a file there; None if there is none."""
    with remote.explained(f'{self.url}/{name}'), contextlib.suppress(FileNotFoundError):
      self._file_system.invalidate_cache()
      return self._file_system.cat_file(self._at(name))
    return None

  def remove(self, name: str, first: str) -> None:
    """Removes a folder there, its marker `first` before all else."""
    names = sorted(self.names(name), key=lambda file: file != f'{name}/{first}')
    for file in names[:1]:
      self._remove(file)
    self._each(self._remove, [(file,) for file in names[1:]])
    with remote.explained(f'{self.url}/{name}'):
      self._file_system.invalidate_cache()
      if self._file_system.isdir(self._at(name)):  # where folders outlive their files
        self._file_system.rm(self._at(name), recursive=True)

  def prune(self, below: str, names: Collection[str]) -> None:
    """Removes the files of a folder there that are none of these, by their names in it."""
    own = {f'{below}/{name}' for name in names}
    self._each(self._remove, [(name,) for name in self.names(below) if name not in own])

  def _remove(self, name: str) -> None:
    with remote.explained(f'{self.url}/{name}'):
      self._file_system.rm_file(self._at(name))

  def _at(self, name: str) -> str:
    return f'{self._there}/{name}' if name else self._there

  def _each(self, do: Callable[..., None], jobs: Iterable[tuple]) -> None:
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
      for future in [pool.submit(do, *job) for job in jobs]:
        future.result()

  def _fetch(self, name: str, token: str, size: int) -> None:
    file = self.here / name
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f'{file.name}.part')
    url = f'{self.url}/{name}'
    with writing(f'a copy of {url}', part), remote.explained(url) as callback:
      self._file_system.get_file(self._at(name), str(part), callback=callback)
    if (got := part.stat().st_size) != size:
      raise UserError(f'{self.url}/{name}: expected {size} bytes, got {got}; try again')
    part.replace(file)
    self._remember(name, token, _seen(file))

  def _send(self, file: pathlib.Path, name: str) -> None:
    seen = _seen(file)
    with remote.explained(f'{self.url}/{name}') as callback:
      if seen[0] > _WHOLE:
        self._file_system.put_file(str(file), self._at(name), callback=callback)
      else:  # what grows while it is sent, as metrics.jsonl does, is sent as it was
        data = file.read_bytes()
        seen[0] = len(data)
        self._file_system.pipe_file(self._at(name), data)
      self._file_system.invalidate_cache()
      info = self._file_system.info(self._at(name))
    if info['size'] < seen[0]:  # more, where it has grown meanwhile: it is sent again
      raise UserError(f'{self.url}/{name}: expected {seen[0]} bytes there, got {info["size"]}')
    self._remember(name, _token(info), seen)

  def _differs(self, name: str, token: str) -> bool:
    file = self.here / name
    return not file.is_file() or self._known.get(name) != [token, *_seen(file)]

  def _remember(self, name: str, token: str, seen: list[int]) -> None:
    with self._lock:
      self._known[name] = [token, *seen]
      self._note.parent.mkdir(parents=True, exist_ok=True)
      with open(self._note, 'a', encoding='utf-8') as note:
        note.write(json.dumps([name, self._known[name]]) + '\n')


def cache() -> pathlib.Path:
  """Returns this host's folder for what can be made again: copies, compiled code."""
  home = os.environ.get('XDG_CACHE_HOME', '~/.cache')
  return pathlib.Path(os.environ.get(CACHE) or f'{home}/bertjax').expanduser().absolute()


# What file systems call the version of a file, and the time of its last change.
_VERSIONS = ('etag', 'ETag', 'generation', 'blob_id', 'sha', 'checksum')
_TIMES = (
  'mtime', 'LastModified', 'Last-Modified', 'last_modified', 'modificationTime', 'created',
)  # fmt: skip


def _token(info: Mapping[str, Any]) -> str:
  """Returns a text that changes with a file, from its file system's version, time or size."""
  said = [str(info[key]) for key in _VERSIONS if info.get(key)]
  times = [str(info[key]) for key in _TIMES if info.get(key)]
  return ' '.join(said or times or [str(info['size'])])


def _seen(file: pathlib.Path) -> list[int]:
  stat = file.stat()
  return [stat.st_size, stat.st_mtime_ns]


def _read_note(note: pathlib.Path) -> dict[str, list]:
  known = {}
  with contextlib.suppress(FileNotFoundError):
    for line in note.read_text(encoding='utf-8').splitlines():
      with contextlib.suppress(ValueError):  # the last one, torn by a kill
        name, seen = json.loads(line)
        known[name] = seen
  return known
