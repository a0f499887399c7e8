"""The record of a checkpoint: a sha256 of every file, written last and verified before a restore.

`manifest.json` in the checkpoint's directory is one JSON object: `format`, whatever the writer
adds, `files` (path -> [bytes, sha256]) and `sha256`, of the object without that key. Every format
keeps `format` and `sha256` in this sense, so that a newer checkpoint is told from a damaged one.

`scores.json` beside it comes later, when the checkpoint has been evaluated, and is signed alike.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

from bertjax import json_files
from bertjax.errors import UserError
from bertjax.machine import checksums, durable

FORMAT = 2  # 1 had the scores in the manifest, and no sums of what is not logged yet
NAME, SCORES = 'manifest.json', 'scores.json'


Files = dict[str, list]  # name -> [bytes, sha256]


class Damaged(Exception):
  """A checkpoint is not what was written; the message names the file, what was expected and what
  was found."""


def write(directory: pathlib.Path, record: Mapping[str, Any], files: Files | None = None) -> None:
  """Writes the manifest of a finished checkpoint: JSON values, and `files` as `files_of` returned
  them, of all processes where each has a directory of its own."""
  write_signed(directory / NAME, dict(record, format=FORMAT, files=files or files_of(directory)))


def write_signed(path: pathlib.Path, body: Mapping[str, Any]) -> None:
  """Writes a JSON file, or replaces it, with the sha256 of what it says."""
  durable.write_json(path, dict(body, sha256=checksums.digest(body)))


def files_of(directory: pathlib.Path) -> Files:
  """Flushes the directory's files and hashes them; returns name -> [bytes, sha256]."""
  files = {}
  for path in _files(directory):
    durable.sync(path)
    files[_name(path, directory)] = [path.stat().st_size, checksums.of_file(path)]
  for folder in (p for p in directory.rglob('*') if p.is_dir()):
    durable.sync(folder)
  return files


def read_scores(directory: pathlib.Path) -> dict[str, float] | None:
  """Returns the scores of a checkpoint; None if it has none yet, or damaged ones."""
  try:
    return _load(directory, SCORES)['scores']
  except Damaged:
    return None


def read(directory: pathlib.Path) -> dict[str, Any]:
  """Returns the record of a checkpoint without looking at its other files. Damaged: no manifest, or
  a changed one; UserError: a newer bertjax wrote it."""
  body = _load(directory, NAME)
  if body['format'] > FORMAT:
    raise UserError(
      f'{directory} has format {body["format"]}, this bertjax reads up to {FORMAT}: update bertjax'
    )
  return body


def verify(directory: pathlib.Path) -> None:
  """Compares every file with the manifest; a newer format is left to `read`. Damaged: a missing,
  extra, truncated or changed file."""
  body = _load(directory, NAME)
  if body['format'] > FORMAT:
    return
  found = {_name(path, directory): path for path in _files(directory)}
  for name in sorted(body['files'].keys() | found.keys()):
    if name not in found:
      raise Damaged(f'{name} is missing')
    if name not in body['files']:
      raise Damaged(f'{name} is extra: the manifest does not list it')
    if said := checksums.fault(found[name], *body['files'][name]):
      raise Damaged(said.removeprefix(f'{directory}/'))


def _load(directory: pathlib.Path, name: str) -> dict[str, Any]:
  path = directory / name
  if not path.is_file():
    raise Damaged(f'{name} is missing')
  try:
    body = json_files.loads(path.read_bytes())
    expected = body.pop('sha256')
  except (ValueError, KeyError, AttributeError, TypeError) as error:
    raise Damaged(f'{name} is not the JSON that was written: {error!r}') from error
  if (got := checksums.digest(body)) != expected:
    raise Damaged(f'{name}: expected sha256 {str(expected)[:12]}, got {got[:12]}')
  return body


def _files(directory: pathlib.Path) -> list[pathlib.Path]:
  own = (directory / NAME, directory / SCORES, directory / f'{SCORES}.tmp')
  return sorted(p for p in directory.rglob('*') if not p.is_dir() and p not in own)


def _name(path: pathlib.Path, directory: pathlib.Path) -> str:
  return path.relative_to(directory).as_posix()
