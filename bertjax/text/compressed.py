"""Compressed files as streams of bytes: .gz, .xz, .bz2 and, where pyarrow is installed, .zst."""

import bz2
import gzip
import io
import lzma
import pathlib
import types
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

from bertjax.errors import UserError, package


def suffix(path: pathlib.Path) -> str:
  """'.gz', '.xz', '.bz2' or '.zst' where the name ends so, else ''."""
  end = path.suffix.lower()
  return end if end in _OPENERS else ''


def lines(path: pathlib.Path, raw: IO[bytes], longest: int) -> Iterator[bytes]:
  """Yields the lines of an opened file with their line feeds, decompressed as its name says. Of a
  line longer than `longest` comes one byte more than that. Raises UserError for a damaged archive,
  or if no package reads it."""
  file, size = _open(path, raw), 0
  try:
    while line := file.readline(longest + 1):
      size += len(line)
      yield line
      while len(line) > longest and not line.endswith(b'\n'):
        line = file.readline(longest + 1) or b'\n'
  except (EOFError, lzma.LZMAError, zlib.error, OSError) as error:
    raise damaged(path, f'is damaged or cut short after {size} bytes of text', error) from error


def head(path: pathlib.Path, size: int) -> bytes:
  """Returns the first bytes of a file, decompressed, or all of a shorter one. Raises UserError: a
  damaged archive, or no package that reads it."""
  with path.open('rb') as raw:
    try:
      return _open(path, raw).read(size)
    except EOFError:
      return b''  # cut short within its first bytes; whoever reads it says so
    except (lzma.LZMAError, zlib.error, OSError) as error:
      raise damaged(path, 'is damaged or cut short after 0 bytes of text', error) from error


def _open(path: pathlib.Path, raw: IO[bytes]) -> Any:
  opener = _OPENERS.get(suffix(path))
  return opener(raw) if opener else raw


def damaged(path: pathlib.Path, said: str, error: Exception) -> Exception:
  """Returns the error for a file that is as `said`, or whose disk fails: that knows no file."""
  if isinstance(error, OSError) and error.errno is not None:
    return OSError(error.errno, error.strerror, str(path))
  return UserError(f'{path} {said}: {error}')


def _open_zst(raw: IO[bytes]) -> IO[bytes]:
  pyarrow = package('pyarrow', f'{getattr(raw, "name", raw)}: Zstandard')
  # It closes what it reads when it goes, and who opened the file asks for its place after that.
  kept = types.SimpleNamespace(read=raw.read, close=lambda: None, closed=False)
  return io.BufferedReader(pyarrow.CompressedInputStream(kept, 'zstd'))


_OPENERS: dict[str, Callable[[IO[bytes]], Any]] = {
  '.gz': lambda raw: gzip.open(raw, 'rb'),
  '.xz': lambda raw: lzma.open(raw, 'rb'),
  '.bz2': lambda raw: bz2.open(raw, 'rb'),
  '.zst': _open_zst,
}
