"""Files of vectors, written as they come and renamed into place when all are there.

OUT.npy           float32 [texts, D]; of tokens [all tokens, D], and OUT.offsets.npy, int64
                  [texts + 1]: those of text n are from offsets[n] to offsets[n + 1]
OUT.safetensors   the same as tensors `embeddings` and, of tokens, `offsets`
OUT.jsonl         {"text": .., "embedding": [..]}, of tokens {"text": .., "tokens": [..],
                  "embeddings": [[..], ..]}
"""

import contextlib
import functools
import json
import os
import pathlib
import struct
from collections.abc import Sequence
from typing import IO, Any

import numpy as np

from bertjax.errors import UserError, warn, writing
from bertjax.formats.sentence_modules import MEAN, Sentences

ENDINGS = ('.npy', '.safetensors', '.jsonl')
_HEADER = 512  # bytes of a header of safetensors, which is written again when the counts are known


class Writer:
  """A file of vectors; a context manager. Leaves nothing behind if it fails."""

  def __init__(self, path: pathlib.Path | str, width: int, tokens: bool):
    """Raises UserError: an ending that is none of ENDINGS, which say the format, or no such
    directory. With `tokens` each text has a vector for each token."""
    self._path = check(path)
    self._partial = self._path.with_name(f'{self._path.name}.partial')
    self._width, self._tokens = width, tokens
    self._count, self._offsets = 0, [0]
    with writing('the embeddings', self._path):
      self._file: IO[bytes] = open(self._partial, 'w+b')
      self._write_header()

  def __enter__(self) -> 'Writer':
    return self

  def __exit__(self, kind: Any, *_) -> None:
    with writing('the embeddings', self._path), contextlib.ExitStack() as stack:
      stack.callback(self._partial.unlink, missing_ok=True)
      stack.callback(self._file.close)
      if kind is None:
        self._finish()

  def add(self, texts: Sequence[str], vectors: Any, tokens: Sequence[Sequence[str]] | None) -> None:
    """Appends the vectors of some texts, [texts, D], or of their tokens [tokens, D] for each."""
    with writing('the embeddings', self._path):
      if self._path.suffix == '.jsonl':
        self._file.write(''.join(_lines(texts, vectors, tokens)).encode())
        return
      for each in vectors if self._tokens else [vectors]:
        self._file.write(np.ascontiguousarray(each, '<f4').tobytes())
        self._count += len(each)
        self._offsets.append(self._count)

  def _write_header(self) -> None:
    self._file.seek(0)
    shape = (self._count, self._width)
    if self._path.suffix == '.npy':
      # NumPy leaves room for the first axis to grow, so a longer count has the same header's size.
      said = dict(descr='<f4', fortran_order=False, shape=shape)
      np.lib.format.write_array_header_1_0(self._file, said)  # pyright: ignore
    if self._path.suffix == '.safetensors':
      size = 4 * self._count * self._width
      said: dict[str, Any] = dict(embeddings=dict(dtype='F32', shape=shape, data_offsets=(0, size)))
      if self._tokens:
        end = size + 8 * len(self._offsets)
        said['offsets'] = dict(dtype='I64', shape=[len(self._offsets)], data_offsets=(size, end))
      self._file.write(struct.pack('<Q', _HEADER) + json.dumps(said).encode().ljust(_HEADER))

  def _finish(self) -> None:
    offsets = np.array(self._offsets, '<i8')
    if self._path.suffix == '.safetensors' and self._tokens:
      self._file.write(offsets.tobytes())
    self._write_header()
    self._file.flush()
    os.fsync(self._file.fileno())
    if self._path.suffix == '.npy' and self._tokens:
      np.save(self._path.with_suffix('.offsets.npy'), offsets)
    self._partial.replace(self._path)


def check(path: pathlib.Path | str) -> pathlib.Path:
  """Returns the path of a file of vectors. Raises UserError: an ending that says no format, or no
  such directory."""
  path = pathlib.Path(path)
  if path.suffix not in ENDINGS:
    raise UserError(f'--output: expected a name that ends in {", ".join(ENDINGS)}, got {path}')
  if path.is_dir() or not path.parent.is_dir():
    raise UserError(f'--output: expected a file in a directory that exists, got {path}')
  return path


@functools.cache  # a thing is said once
def chosen(declared: Sentences, pool: str | None, source: pathlib.Path) -> Sentences:
  """Returns how vectors are made: as declared, or else by the pooling that is given, which is said.
  Raises UserError if nothing is given, and what is declared is not computed here."""
  if pool is None and declared.refused:
    raise UserError(
      f'modules.json of {source} declares {declared.refused}, which is not computed here: expected '
      "pool (--pool), 'mean', 'first' or 'none', for vectors of another kind"
    )
  if not declared.refused and pool in (None, declared.pool):
    return declared
  if declared != MEAN:
    said = ', '.join(f'{k}={x!r}' for k, x in declared._asdict().items() if x != getattr(MEAN, k))
    warn('modules.json of %s declares %s: pool=%r sets it aside', source, said, pool)
  return Sentences(pool or '')


def normalized(vectors: Any) -> Any:
  """Returns the vectors, or lists of them, of length 1; zeros stay."""
  if isinstance(vectors, list):
    return [normalized(each) for each in vectors]
  return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def _lines(texts: Sequence[str], vectors: Any, tokens: Sequence[Sequence[str]] | None):
  for number, (text, each) in enumerate(zip(texts, vectors, strict=True)):
    values = np.asarray(each, np.float32).tolist()
    if tokens is None:
      found = dict(text=text, embedding=values)
    else:
      found = dict(text=text, tokens=list(tokens[number]), embeddings=values)
    yield json.dumps(found, ensure_ascii=False) + '\n'
