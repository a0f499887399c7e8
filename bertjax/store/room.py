"""Says how large a store will be, before its text is read, and refuses one that its disk cannot
hold.
"""

import pathlib
import shutil
from collections.abc import Iterator

from bertjax.errors import UserError, amount
from bertjax.store import encode
from bertjax.store.unfinished import partial_of
from bertjax.store.writer import token_dtype
from bertjax.text import documents as documents_lib
from bertjax.text.corpus import Corpus
from bertjax.vocab.vocabulary import Vocabulary

_FILES, _HEAD = 8, 2**22  # files that are looked into, and bytes of text of all
_OFFSET = 8  # bytes of the place of a sentence, and of a document
_OF_A_PIECE = 2 * 9  # bytes, in the store and its held-out part
_SURE = 0.8  # of an estimate


def require(
  corpus: Corpus, vocabulary: Vocabulary, options: encode.Options, output: pathlib.Path
) -> None:
  """Prints about how many bytes the store will have and how many are free, by the beginnings of
  some files. Raises UserError where that is too few by far, or a beginning cannot be encoded."""
  place = output.absolute()
  while not place.exists():
    place = place.parent
  free = shutil.disk_usage(place).free
  width = token_dtype(vocabulary.size).itemsize
  tokens = share = size = 0.0
  beginnings = list(_beginnings(corpus))
  for documents, part in beginnings:
    found = encode.encode(documents, vocabulary, options)
    sentences = len(found.length_S)
    tokens, share = tokens + len(found.token_n), share + part
    size += len(found.token_n) * (width + (found.unit_n is not None))
    size += sentences * (_OFFSET + len(found.column)) + (found.size_D > 0).sum() * _OFFSET
  if not share:
    print(f'How large the store will be is not known before; {_said(free)} are free', flush=True)
    return
  size, tokens = size / share + _OF_A_PIECE * vocabulary.size, tokens / share
  print(
    f'The store will take about {_said(size)}, {tokens / 1e6:,.1f} M tokens of {width} bytes and '
    f'an index of sentences, by {amount(len(beginnings), "places")} of the text. Plans beside '
    f'it add 2% of that (roberta) to three times (albert). {_said(free)} are free',
    flush=True,
  )
  there = sum(file.stat().st_size for file in partial_of(output).rglob('*') if file.is_file())
  if _SURE * size - there > free:
    raise UserError(
      f'{place} has {_said(free)} free, but the store needs about {_said(size)}: make room, name '
      'a path on another disk, or train without a store (config.data.reader=seqio, '
      'docs/running.md)'
    )


def _beginnings(corpus: Corpus) -> Iterator[tuple[list[bytes], float]]:
  """Yields some documents and what share of the text they are; none where nobody knows that."""
  files = corpus.files
  if files is None:
    documents = next(corpus.batches(), []) if corpus.documents else []
    yield documents, len(documents) / (corpus.documents or 1)
    return
  parts = files.parts()
  some = parts[:: -(-len(parts) // _FILES)]
  for source in some:
    one = files.alone(source)
    documents = next(documents_lib.blocks(one, _HEAD // len(some)), [])
    yield documents, one.done / files.total


def _said(size: float) -> str:
  return f'{size / 1e9:,.1f} GB' if size >= 1e9 else f'{size / 1e6:,.1f} MB'
