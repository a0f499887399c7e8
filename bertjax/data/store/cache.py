"""Directories that are built once, found by what they were built from, and never half there."""

import errno
import hashlib
import json
import logging
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from bertjax.errors import UserError

RECORD = (
  'record.json'  # written last: what it was built from, its figures, and the size of each file
)


def digest(value: Any) -> str:
  """Returns the sha256 of a value that JSON can hold."""
  return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def directory(
  roots: Sequence[pathlib.Path],
  identity: dict[str, Any],
  build: Callable[[pathlib.Path], dict[str, int]],
) -> tuple[pathlib.Path, dict[str, int]]:
  """Finds the directory with this identity, or builds it under the first root that can be written.

  Args:
    roots: where it may be, best first; made if need be.
    identity: what the contents follow from.
    build: fills an empty directory and returns figures to be kept with it.

  Returns:
    The directory and its figures.

  Raises:
    UserError: it is not there and no root can be written.
    OSError: writing failed for another reason, such as a full disk; nothing is left behind.
  """
  identity = json.loads(json.dumps(identity))  # as it will be read: tuples are lists there
  name = digest(identity)[:32]
  for root in roots:
    if (record := _record(root / name, identity)) is not None:
      return root / name, record['figures']
  for root in roots:
    try:
      root.mkdir(parents=True, exist_ok=True)
      temporary = pathlib.Path(tempfile.mkdtemp(prefix='.building-', dir=root))
    except OSError as error:
      if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
        raise
      continue
    logging.info('building %s', root / name)
    try:
      figures = build(temporary)
      files = {path.name: path.stat().st_size for path in temporary.iterdir()}
      _write(temporary / RECORD, dict(identity=identity, figures=figures, files=files))
      _publish(temporary, root / name, identity)
    finally:
      shutil.rmtree(temporary, ignore_errors=True)
    return root / name, figures
  raise UserError(
    f'{" and ".join(map(str, roots))} cannot be written: make the store writable, or name a '
    'writable directory for the cache'
  )


def _record(path, identity):
  """Returns the record of a directory that holds all of this, or None."""
  try:
    record = json.loads((path / RECORD).read_text(encoding='utf-8'))
    sizes = {name: (path / name).stat().st_size for name in record['files']}
  except (FileNotFoundError, json.JSONDecodeError):
    return None
  return record if record['identity'] == identity and sizes == record['files'] else None


def _write(path, record):
  with open(path, 'w', encoding='utf-8') as file:
    json.dump(record, file, indent=1)
    file.flush()
    os.fsync(file.fileno())


def _publish(temporary, path, identity):
  """Renames what is finished into place; another process may have been faster with the same."""
  if path.exists() and _record(path, identity) is None:
    logging.warning('%s is damaged and is built again', path)
    shutil.rmtree(path)
  try:
    os.rename(temporary, path)
  except OSError:
    if _record(path, identity) is None:
      raise
