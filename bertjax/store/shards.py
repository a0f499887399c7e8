"""Files of text, encoded one by one, anywhere and in any order, and joined to the store that one
machine makes of them, bit for bit.

A shard is an input file, of parallel text both. Its encoding follows from the file and the options
alone, and so does its name, so what is there already is not made again:

  SHARDS/NAME.shard     a zip, not compressed: NUMBER/FIELD.npy of each block of documents,
                        NUMBER.json with what is no array, and last index.json
  SHARDS/NAME.refused   what is wrong with the text, in a line

Either appears whole or not at all. Where a part of a store may end, and which documents are held
out, follows from all documents before it; so that is decided when shards are joined, in order.
"""

import contextlib
import io
import json
import os
import pathlib
import tempfile
import zipfile
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bertjax.errors import UserError, writing
from bertjax.machine import checksums, durable, remote
from bertjax.store.encode import COUNTED, Encoded, Options, encode, spaced
from bertjax.store.writer import token_dtype
from bertjax.text import corpus as corpus_lib
from bertjax.text import documents as documents_lib
from bertjax.text.files import Files, fingerprint
from bertjax.text.left_out import LeftOut
from bertjax.vocab.vocabulary import Vocabulary

_RECORD = 'record_D'  # bytes of each record, which blocks are cut by


class Shard(NamedTuple):
  """Files to encode in one piece, and the place for the result."""

  files: Files  # one file, or the two sides of parallel text
  options: Options
  besides: Sequence[Any]  # other values that the ids depend on, e.g. the sha256 of a lexicon
  directory: str  # of the results, which all workers see
  name: str  # of the results, as it was found where the command was given

  @property
  def path(self) -> remote.Place:
    """Path of the encoded shard."""
    return remote.path(f'{self.directory}/{self.name}.shard')

  @property
  def refusal(self) -> remote.Place:
    """Path of the error message that stands there if the text is refused."""
    return remote.path(f'{self.directory}/{self.name}.refused')


def divide(
  corpus, options: Options, vocabulary: Vocabulary, directory: str, besides: Sequence[Any]
) -> list[Shard]:
  """Returns the shards of a text of files, in order, and makes a local directory for them."""
  files: Files | None = getattr(corpus, 'files', None)
  if files is None:
    raise UserError(
      '--runner takes files of text, all of them: expected --input=FILES without --documents, got '
      f'--input={corpus.name}'
    )
  if not remote.is_remote(directory):
    pathlib.Path(directory).mkdir(parents=True, exist_ok=True)
  shards = []
  for source in files.parts():
    some = files.alone(source)
    some.total = files.total  # blocks of undivided text are a share of all files
    name = _name(some, options, vocabulary, besides)
    shards.append(Shard(some, options, besides, directory, name))
  return shards


def _name(files: Files, options: Options, vocabulary: Vocabulary, besides: Sequence[Any]) -> str:
  """Returns a digest of what the ids of a shard follow from, as it is where this runs."""
  reading = [files.errors, files.field, files.columns, files.verbatim, files.left_out.skip]
  followed: dict[str, Any] = dict(
    source=fingerprint(files.sources),
    reading=[*reading, files.total],
    options=options._replace(vocab='')._asdict(),
    vocabulary=vocabulary.meta,
    besides=list(besides),
  )
  if spaced(options.split, vocabulary):
    followed['spaced'] = True
  return checksums.digest(followed)[:32]


def make(shard: Shard, vocabulary: Vocabulary) -> None:
  """Encodes a shard by its vocabulary, as that was read here; writes down what is wrong with its
  text, and does not raise it."""
  try:
    name = _name(shard.files, shard.options, vocabulary, shard.besides)
    if name != shard.name:
      raise UserError(
        f'{shard.files.paths[0]} or {shard.options.vocab} is not, where it was read, what it was '
        'where the command was given: expected the same size, time of change and contents'
      )
    _write(shard.path, lambda file: _encode(file, shard, vocabulary))
  except UserError as error:
    message = str(error)
    _write(shard.refusal, lambda file: file.write_text(message, encoding='utf-8'))


def _encode(file: pathlib.Path, shard: Shard, vocabulary: Vocabulary) -> None:
  dtype = token_dtype(vocabulary.size)
  with zipfile.ZipFile(file, 'w', zipfile.ZIP_STORED) as archive:
    count = 0
    for count, records in enumerate(
      documents_lib.blocks(iter(shard.files), corpus_lib.BLOCK_BYTES), 1
    ):
      batch = encode(records, vocabulary, shard.options)
      batch = batch._replace(token_n=batch.token_n.astype(dtype))
      arrays = dict(token_n=batch.token_n, length_S=batch.length_S, size_D=batch.size_D)
      arrays |= {} if batch.unit_n is None else dict(unit_n=batch.unit_n)
      arrays |= {f'column/{name}': value_S for name, value_S in batch.column.items()}
      arrays |= {**batch.counted, _RECORD: np.array([len(record) for record in records])}
      for name, array in arrays.items():
        with archive.open(f'{count - 1}/{name}.npy', 'w') as entry:
          np.save(entry, array, allow_pickle=False)
      said = dict(languages=batch.languages, bad=batch.bad, arrays=list(arrays))
      archive.writestr(f'{count - 1}.json', json.dumps(said))
    left_out = shard.files.left_out
    index = dict(blocks=count, bad_lines=left_out.count, bad_first=left_out.named)
    archive.writestr('index.json', json.dumps(index))


def _write(path: remote.Place, write: Callable[[pathlib.Path], Any]) -> None:
  """Writes a file that appears whole or not at all, and that another worker may write too."""
  here = None if isinstance(path, remote.RemotePath) else os.fspath(path.parent)
  with tempfile.TemporaryDirectory(prefix='.', dir=here) as directory:
    file = pathlib.Path(directory, path.name)
    with writing('encoded text', file):
      write(file)
    if isinstance(path, remote.RemotePath):
      path.receive(file)
    else:
      durable.sync(file)
      os.replace(file, path)


def joined(shards: Sequence[Shard], skip: int) -> Generator[Encoded, None, None]:
  """Yields the documents of all shards in order, in blocks as one machine makes them of the whole
  text, but for `skip` documents (whole blocks) at the beginning. Raises UserError for damage."""
  size = 0  # bytes of the block so far
  for shard in shards:
    for batch, record_D in _blocks(shard.path):
      first = min(skip, len(record_D))
      skip -= first
      while first < len(record_D):
        size_D = size + np.cumsum(record_D[first:])
        last = first + int(np.searchsorted(size_D, corpus_lib.BLOCK_BYTES)) + 1
        whole = last <= len(record_D)
        yield batch.between(first, min(last, len(record_D)), whole)
        size, first = (0 if whole else int(size_D[-1])), last


def left_out(shards: Sequence[Shard]) -> LeftOut:
  """Adds up the lines and records that all shards left out because they were wrong."""
  found = LeftOut(True)
  for shard in shards:
    with _opened(shard.path) as archive:
      index = _json(archive, 'index.json')
    found.count += index['bad_lines']
    found.named += index['bad_first']
  return found


def _blocks(path: remote.Place) -> Iterator[tuple[Encoded, np.ndarray]]:
  """Yields (documents, bytes of each record) of a shard."""
  with _opened(path) as archive:
    for block in range(_json(archive, 'index.json')['blocks']):
      said = _json(archive, f'{block}.json')
      read = lambda name, at=block: io.BytesIO(archive.read(f'{at}/{name}.npy'))
      array = {name: np.load(read(name), allow_pickle=False) for name in said['arrays']}
      batch = Encoded(
        **{name: array[name] for name in ('token_n', 'length_S', 'size_D')},
        counted={name: array[name] for name in COUNTED},
        unit_n=array.get('unit_n'),
        column={k[7:]: x for k, x in array.items() if k.startswith('column/')},
        languages=said['languages'],
        bad={int(number): what for number, what in said['bad'].items()},
      )
      yield batch, array[_RECORD]


@contextlib.contextmanager
def _opened(path: remote.Place) -> Iterator[zipfile.ZipFile]:
  try:
    with path.open('rb') as file, zipfile.ZipFile(file) as archive:
      yield archive
  except (zipfile.BadZipFile, KeyError, ValueError) as error:
    raise UserError(
      f'{path} is damaged ({error}): remove it, and give the same command again'
    ) from error


def _json(archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
  return json.loads(archive.read(name))
