"""Writes token stores part by part: memory is bounded by a part, and finished parts survive a kill.

Beside each part of tokens lie the lengths of its sentences, the sizes of its documents and its
counts, until `finish` streams them into the offsets. `store.json` is written last, with the sha256
of every file, which is found while the file is written.
"""

import hashlib
import io
import itertools
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bertjax.machine import checksums, durable
from bertjax.store.reader import FORMAT, column_name, part_name

_NONE: Mapping[str, Any] = {}
_SIDES = ('lengths', 'sizes', 'counts', 'column')


def token_dtype(vocabulary_size: int) -> np.dtype:
  """uint16 where every id fits, else uint32."""
  return np.dtype(np.uint16 if vocabulary_size <= 2**16 else np.uint32)


class Writer:
  """Appends documents to a directory of parts, made with the first. `parts` says what the finished
  ones hold, with the sha256 of their files; hand it to a new Writer to go on after a kill."""

  def __init__(
    self,
    path: pathlib.Path,
    vocabulary_size: int,
    parts: Sequence[Mapping] = (),
    units: bool = False,
    columns: Sequence[str] = (),
  ):
    self.path, self.parts = path, [dict(part) for part in parts]
    self._size, self._names = vocabulary_size, tuple(columns)
    byte, count = np.dtype(np.uint8), np.dtype(np.uint32)
    self._dtypes = dict(tokens=token_dtype(vocabulary_size), lengths=count, sizes=count)
    self._dtypes |= dict(units=byte) if units else {}
    self._dtypes |= {f'column-{name}': byte for name in columns}
    self._clear()

  @property
  def documents(self) -> int:
    """Documents so far, those of the unfinished part included."""
    return sum(part['documents'] for part in self.parts) + sum(map(len, self._arrays['sizes']))

  @property
  def tokens(self) -> int:
    """Tokens so far, those of the unfinished part included."""
    return sum(part['tokens'] for part in self.parts) + sum(map(len, self._arrays['tokens']))

  @property
  def buffered(self) -> int:
    """Bytes of the tokens of the unfinished part."""
    return sum(array.nbytes for array in self._arrays['tokens'])

  def add(
    self,
    token_n: np.ndarray,
    length_S: np.ndarray,
    size_D: np.ndarray,
    unit_n: np.ndarray | None = None,
    column: Mapping[str, np.ndarray] = _NONE,
  ) -> None:
    """Appends D documents of S sentences, sizes and lengths > 0; units are uint8 per token, columns
    0 to 255 per sentence, where the store has them."""
    given: dict[str, Any] = dict(tokens=token_n, lengths=length_S, sizes=size_D, units=unit_n)
    given |= {f'column-{name}': value_S for name, value_S in column.items()}
    for kind, dtype in self._dtypes.items():
      self._arrays[kind].append(given[kind].astype(dtype))
    self._counts += np.bincount(token_n, minlength=self._size)

  def cut(self) -> None:
    """Writes what was added since the last cut as a part, durably. An empty part is written too, so
    that the parts of a held-out store keep step with the store's."""
    number, sha256 = len(self.parts), {}
    self.path.mkdir(parents=True, exist_ok=True)
    for kind, dtype in self._dtypes.items():
      name = part_name(kind, number)
      sha256[name] = _save(self.path / name, self._arrays[kind], dtype)
    _save(self.path / part_name('counts', number), [self._counts], np.dtype(np.int64))
    held = dict(tokens='tokens', sentences='lengths', documents='sizes')
    counted = {name: sum(map(len, self._arrays[kind])) for name, kind in held.items()}
    kept = {name: value for name, value in sha256.items() if not name.startswith(_SIDES)}
    self.parts.append(counted | dict(sha256=kept))
    self._clear()

  def _clear(self) -> None:
    self._arrays: dict[str, list[np.ndarray]] = {kind: [] for kind in self._dtypes}
    self._counts = np.zeros(self._size, np.int64)

  def finish(self, word_starts: np.ndarray, meta: Mapping[str, Any]) -> dict[str, Any]:
    """Turns the parts into a store: offsets, counts, word starts (bool [V]) and, last, store.json,
    which it returns; `meta` is what that says of name, vocabulary, source and languages."""
    total = {k: sum(part[k] for part in self.parts) for k in ('tokens', 'sentences', 'documents')}
    counts_V = np.zeros(self._size, np.int64)
    for array in self._sides('counts'):
      counts_V += array
    sha256 = {name: value for part in self.parts for name, value in part['sha256'].items()}
    for name, kind in (('sentences', 'lengths'), ('documents', 'sizes')):
      file = f'{name}.npy'
      sha256[file] = _save_offsets(self.path / file, self._sides(kind), total[name])
    starts_V = np.asarray(word_starts, bool)
    for name, array in (('counts.npy', counts_V), ('word_starts.npy', starts_V)):
      sha256[name] = _save(self.path / name, [array], array.dtype)
    for name in self._names:
      (self.path / 'columns').mkdir(exist_ok=True)
      sides, file = self._sides(f'column-{name}'), column_name(name)
      sha256[file] = _stream(self.path / file, sides, np.dtype(np.uint8), total['sentences'])
    for path in sorted(self.path.glob('vocab/*')):
      sha256[str(path.relative_to(self.path))] = checksums.of_file(path)
    store = dict(
      format=FORMAT,
      **(dict(languages=[]) | dict(meta)),
      units='units' in self._dtypes,
      columns=list(self._names),
      dtype=str(self._dtypes['tokens']),
      **total,
      parts=len(self.parts),
      files={name: (self.path / name).stat().st_size for name in sha256},
      sha256=sha256,
    )
    sha256['store.json'] = checksums.digest(store)
    durable.write_json(self.path / 'store.json', store)
    return store

  def _sides(self, kind: str) -> Iterator[np.ndarray]:
    for part in range(len(self.parts)):
      yield np.load(self.path / part_name(kind, part))


def remove_sides(path: pathlib.Path) -> None:
  """Removes what only `Writer.finish` needed; it may be called again after a kill."""
  for kind in _SIDES:
    for file in path.glob(f'{kind}-*.npy'):
      file.unlink()


def _save(path: pathlib.Path, arrays: Sequence[np.ndarray], dtype: np.dtype) -> str:
  """Writes arrays end to end as one, durably, without joining them in memory; returns the file's
  sha256."""
  return _stream(path, arrays, dtype, sum(map(len, arrays)))


def _save_offsets(path: pathlib.Path, sizes: Iterator[np.ndarray], total: int) -> str:
  """Writes the running sums of some arrays, from 0, as one int64 [total + 1] array, as `_save`."""

  def offsets():
    end = np.zeros(1, np.int64)
    yield end
    for size_n in sizes:
      offset_n = end[-1] + np.cumsum(size_n, dtype=np.int64)
      yield offset_n
      end = offset_n if len(offset_n) else end

  return _stream(path, offsets(), np.dtype(np.int64), total + 1)


def _stream(path: pathlib.Path, chunks: Iterable[np.ndarray], dtype: np.dtype, length: int) -> str:
  header = io.BytesIO()
  descr = np.lib.format.dtype_to_descr(dtype)
  np.lib.format.write_array_header_1_0(
    header, dict(descr=descr, fortran_order=False, shape=(length,))
  )
  sha256 = hashlib.sha256()
  with open(path, 'wb') as file:
    for data in itertools.chain([header.getvalue()], (chunk.data for chunk in chunks)):
      file.write(data)
      sha256.update(data)
    file.flush()
    os.fsync(file.fileno())
  return sha256.hexdigest()
