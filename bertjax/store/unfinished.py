"""Bookkeeping of a partly written store: OUTPUT.partial, its lock, progress and identity.

progress.json   identity, stats, parts and languages, after every part: how many documents of the
                source lie behind it, so that a run that was killed goes on there
"""

import contextlib
import json
import os
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from bertjax import json_files
from bertjax.errors import UserError
from bertjax.machine import locks, remote
from bertjax.store.reader import read_meta
from bertjax.store.writer import remove_sides

PROGRESS = 'progress.json'
_NOTED = dict(identity=dict, stats=dict, parts=dict, languages=list, begun=list)  # its keys
_SIDES = dict(train=list, held_out=list)  # those of its parts
_OURS = re.compile(
  r'(tokens|units)-\d+\.npy|(sentences|documents|counts|word_starts)\.npy|store\.json|columns|vocab'
  r'|heldout|plans|'
)


def partial_of(output: pathlib.Path) -> pathlib.Path:
  """OUTPUT.partial, which becomes OUTPUT in one rename."""
  return output.with_name(output.name + '.partial')


@contextlib.contextmanager
def owned(output: pathlib.Path) -> Iterator[None]:
  """Holds a store that is not finished; raises UserError where another process is at it."""
  if (output / 'store.json').is_file():
    yield
    return
  partial = partial_of(output)
  lock = partial.with_name(f'{partial.name}.lock')
  output.parent.mkdir(parents=True, exist_ok=True)
  with locks.alone(lock, f'another process is writing {partial}'):
    yield


def is_finished(output: pathlib.Path, identity: Mapping[str, Any]) -> bool:
  """Returns whether the directory holds the finished store of this identity; raises UserError with
  the differences where it is that of another one."""
  partial = partial_of(output)
  if (partial / 'store.json').is_file() and not (partial / PROGRESS).exists():
    give_name(partial, output)  # killed in the last moment
  file = output / 'store.json'
  if not file.is_file():
    return False
  _compare(output, read_meta(output), identity)
  return True


def refuse_foreign(output: str) -> None:
  """Raises UserError where a URL has other files than a store's; parts of one that was not sent to
  its end may lie there."""
  names = remote.names(output) if remote.is_remote(output) else set()
  foreign = sorted(name for name in names if not _OURS.fullmatch(name))
  if foreign and 'store.json' not in names:
    raise UserError(
      f'{output} has {foreign[0]!r}, which is no part of a token store: name another --output'
    )


def read_progress(path: pathlib.Path, identity: Mapping[str, Any]) -> dict[str, Any] | None:
  """Returns how far OUTPUT.partial was written that is to go on; None if nothing of it was. Raises
  UserError where it cannot go on, or is another store than the one that is asked for."""
  file = path / PROGRESS
  if not path.exists():
    return None
  if path.is_dir() and {each.name for each in path.iterdir()} <= {f'{PROGRESS}.tmp'}:
    return None  # it was killed, or the disk was full, before its first note
  if not file.is_file():
    raise UserError(
      f'{path} exists, but holds no part of a store that could be continued: remove it'
    )
  remedy = f': remove {path}, to begin anew'
  progress = json_files.read(file, dict, remedy)
  for found, kinds in ((progress, _NOTED), (progress.get('parts'), _SIDES)):
    json_files.check(file, found, kinds)
    if lacking := [key for key in kinds if found.get(key) is None]:
      raise UserError(f'{file} was changed or damaged, it has no {lacking[0]!r}{remedy}')
  _compare(path, progress['identity'], identity)
  return progress


def give_name(partial: pathlib.Path, output: pathlib.Path) -> None:
  """Gives a store that is written its name."""
  for directory in (partial, partial / 'heldout'):
    remove_sides(directory)
  os.replace(partial, output)


def _compare(path: pathlib.Path, found: Mapping, asked: Mapping) -> None:
  lines = []
  for key in (key for key, value in asked.items() if found.get(key) != value):
    old, new = found.get(key), asked[key]
    if isinstance(old, dict) and isinstance(new, dict):
      differing = [name for name in old | new if old.get(name) != new.get(name)]
      old, new = ({k: v for k, v in each.items() if k in differing} for each in (old, new))
    lines.append(f'  {key}: there {_short(old)}, asked for {_short(new)}')
  if lines:
    raise UserError(
      f'{path} was begun with something else:\n' + '\n'.join(lines) + '\n'
      f'Repeat the command that began it, remove {path}, or name another --output'
    )


def _short(value: Any) -> str:
  text = json.dumps(value, ensure_ascii=False)
  return text if len(text) <= 300 else text[:300] + ' ...'
