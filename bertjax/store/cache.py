"""Directories that are built once, found by what they were built from, and never half there.

  ROOT/NAME/              what was built, with its record; NAME is a digest of what it follows from
  ROOT/NAME.lock          held while it is built: of many processes one builds, the others wait
  ROOT/.building-NAME-*/  is being built, or was when the process was killed: swept by the next one

A cache may fail. Whatever cannot be read counts as not there, where it cannot be written the next
root is tried, and both are said, once.
"""

import json
import logging
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from bertjax import json_files
from bertjax.errors import warn, warn_once
from bertjax.machine import checksums, durable, locks

# Written last: what it was built from, its figures, size and sha256 of each file, and a sha256 of
# the record itself.
RECORD = 'record.json'
AT_ONCE = 1 << 30  # bytes: what is larger is only compared with its sizes when it is opened

_BUILDING = '.building-'


class NoRoom(Exception):
  """No root can be written; says why, of each."""


def directory(
  roots: Sequence[pathlib.Path],
  identity: dict[str, Any],
  build: Callable[[pathlib.Path], dict[str, int]],
) -> tuple[pathlib.Path, dict[str, int]]:
  """Finds the directory with this identity, what its contents follow from, or builds it under the
  first root that can be written; returns it and the figures that `build` has returned of an empty
  directory. NoRoom: there is none and no root can be written."""
  identity = json.loads(json.dumps(identity))  # as it will be read: tuples are lists there
  name = checksums.digest(identity)[:32]
  for root in roots:
    if (figures := _found(root / name, identity)) is not None:
      return root / name, figures
  reasons = []
  for root in roots:
    try:
      return root / name, _built(root, name, identity, build)
    except OSError as error:
      reasons.append(f'{root}: {error.strerror or error}')
      warn_once(f'no plan can be kept in {reasons[-1]}: make room there, or let it be written')
  raise NoRoom('; '.join(reasons))


def fault(path: pathlib.Path) -> str:
  """Reads a cached directory from end to end; returns its first fault, '' if it has none."""
  try:
    record = _record(path)
  except _Damaged as damage:
    return str(damage)
  return next(iter(checksums.faults(path, record['files'])), '')


def discard(path: pathlib.Path) -> None:
  """Makes a damaged directory count as missing from now on; those who read it may go on to."""
  try:
    (path / RECORD).unlink(missing_ok=True)
  except OSError as error:
    warn_once(f'{path} is damaged and cannot be removed ({error.strerror}): remove it')


class _Damaged(Exception):
  """Damage to a cached directory; the message names it."""


def _record(path: pathlib.Path) -> dict[str, Any]:
  file = path / RECORD
  try:
    record = json_files.loads(file.read_bytes())
    sha256 = record.pop('sha256')
    whole = sha256 == checksums.digest(record)
    outside = [name for name in record['files'] if pathlib.PurePath(name).name != name]
  except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
    raise _Damaged(f'{file}: {error!r}') from error
  if not whole:
    raise _Damaged(f'{file}: its sha256 is not that of what it says')
  if outside:
    raise _Damaged(f'{file} names {outside[0]!r}, which is outside of the plan')
  return record


def _found(path: pathlib.Path, identity: dict[str, Any]) -> dict[str, int] | None:
  """Returns the figures of a directory that holds all of this, or None; damage is said."""
  if not os.path.lexists(path):  # False too where one may not look
    return None
  try:
    record = _record(path)
    if record['identity'] != identity:
      raise _Damaged(f'{path / RECORD}: it was built from something else')
    small = sum(size for size, _ in record['files'].values()) <= AT_ONCE
    if wrong := checksums.faults(path, record['files'], reads=small):
      raise _Damaged(wrong[0])
  except _Damaged as damage:
    warn_once(f'a cached plan is damaged and counts as missing, so it is built again: {damage}')
    return None
  return record['figures']


def _built(root, name, identity, build) -> dict[str, int]:
  """Builds the directory under a root, unless another process does so first. Raises OSError where
  the root cannot be written; nothing is left behind there."""
  path = root / name
  root.mkdir(parents=True, exist_ok=True)
  wait = lambda holder: warn('waiting for %s, which builds %s', holder, path)
  with locks.in_turn(root / f'{name}.lock', wait) as alone:
    if (figures := _found(path, identity)) is not None:
      return figures
    _sweep(root, name if alone else '')
    logging.getLogger(__name__).info('building %s', path)
    temporary = pathlib.Path(tempfile.mkdtemp(prefix=f'{_BUILDING}{name}-', dir=root))
    try:
      figures = build(temporary)
      files = {f.name: (f.stat().st_size, checksums.of_file(f)) for f in temporary.iterdir()}
      record = dict(identity=identity, figures=figures, files=files)
      durable.write_json(temporary / RECORD, dict(record, sha256=checksums.digest(record)))
      if _found(path, identity) is None:  # without locks another one may have been faster
        if path.is_dir() and not path.is_symlink():  # damaged
          shutil.rmtree(path)
        else:
          path.unlink(missing_ok=True)
        os.rename(temporary, path)
    finally:
      shutil.rmtree(temporary, ignore_errors=True)
  return figures


def _sweep(root: pathlib.Path, mine: str) -> None:
  """Removes what killed builds left under a root; `mine` is the name whose lock is ours, or ''."""
  for left in root.glob(f'{_BUILDING}*'):
    name = left.name.removeprefix(_BUILDING).partition('-')[0]
    if name == mine or locks.is_free(root / f'{name}.lock'):
      warn_once(f'{left} was left by a build that was killed: removed')
      shutil.rmtree(left, ignore_errors=True)
