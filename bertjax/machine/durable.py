"""Files and directories that are there whole or not at all, files also after a power cut."""

import contextlib
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from bertjax.errors import UserError, absent, writing


def free(path: pathlib.Path | str) -> pathlib.Path:
  """Returns an absolute path, for `directory` to make. UserError: something is there, and no empty
  directory; or a link that leads nowhere. OSError: no directory can be made there, which is tried
  now, since what is to be written may take hours, and leaves none."""
  path = pathlib.Path(path).absolute()
  if path.is_symlink() and not path.exists():
    raise absent(path, '')
  if path.exists() and (not path.is_dir() or any(path.iterdir())):
    raise UserError(f'{path} exists and is no empty directory: remove it, or name another --output')
  above = next(parent for parent in path.resolve().parents if parent.exists())
  tempfile.TemporaryDirectory(prefix=f'{path.name}.', dir=above).cleanup()
  return path


def write_json(path: pathlib.Path, value: Any) -> None:
  """Replaces a JSON file in one durable step."""
  temporary = path.with_name(path.name + '.tmp')
  with writing('', path):
    # Half a surrogate pair, which names of files may hold, becomes JSON's own escape for it.
    with open(temporary, 'w', encoding='utf-8', errors='backslashreplace') as file:
      json.dump(value, file, indent=1, ensure_ascii=False)
      file.flush()
      os.fsync(file.fileno())
    temporary.replace(path)
    sync(path.parent)


@contextlib.contextmanager
def directory(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields NAME.partial, an empty directory that gets its name at the end, and goes where an error
  comes; it may be moved before. An empty directory of that name, or a link to one, may be there."""
  path = path.resolve()
  partial = path.with_name(path.name + '.partial')
  shutil.rmtree(partial, ignore_errors=True)
  partial.mkdir(parents=True)
  try:
    with writing('', partial):
      yield partial
    if path.exists():
      path.rmdir()
    partial.rename(path)
  finally:
    shutil.rmtree(partial, ignore_errors=True)


def sync(path: pathlib.Path) -> None:
  """Flushes a file or a directory to the disk."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)
