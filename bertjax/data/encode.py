"""What the worker processes of `prepare` do: documents as bytes in, ids out.

Only NumPy, tokenizers and sentencepiece are imported here, so a worker starts in a moment.
"""

import collections
import concurrent.futures
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from bertjax.data import units
from bertjax.data.vocabulary import Vocabulary, load_vocabulary


class Options(NamedTuple):
  """How documents become ids.

  Attributes:
    vocab, lowercase: as of `load_vocabulary`.
    split: 'lines' or 'sentences'.
    errors: 'strict' or 'replace', of bytes that are not UTF-8.
  """

  vocab: str
  lowercase: bool | None
  split: str
  errors: str


class Encoded(NamedTuple):
  """A batch of D documents.

  Attributes:
    token_n: int32 ids, unit by unit.
    length_S: int64 tokens of each unit, > 0.
    size_D: int64 units of each document; 0 where nothing is left of it.
    empty: units without a token, dropped.
    replaced: U+FFFD characters put where bytes were not UTF-8.
    size: bytes of the documents.
  """

  token_n: np.ndarray
  length_S: np.ndarray
  size_D: np.ndarray
  empty: int
  replaced: int
  size: int


def encode(documents: list[bytes], vocabulary: Vocabulary, options: Options) -> Encoded:
  """Splits and tokenises a batch of documents.

  Raises:
    ValueError: bytes that are not UTF-8, where errors are strict.
  """
  texts = [units.decode(document, options.errors) for document in documents]
  replaced = 0
  if options.errors == 'replace':
    mark = '\ufffd'
    given = sum(document.count(mark.encode()) for document in documents)
    replaced = sum(text.count(mark) for text in texts) - given
  split = [units.split_document(text, options.split) for text in texts]
  token_n, length_U = vocabulary.encode_flat([unit for document in split for unit in document])
  kept_U = length_U > 0
  end_D = np.cumsum([0] + [len(document) for document in split])
  kept_before_U = np.append(0, np.cumsum(kept_U))
  return Encoded(
    token_n,
    length_U[kept_U],
    np.diff(kept_before_U[end_D]),
    int(np.sum(~kept_U)),
    replaced,
    sum(map(len, documents)),
  )


def encode_all(batches: Iterable[list[bytes]], options: Options, workers: int) -> Iterator[Encoded]:
  """Encodes batches in several processes; yields the results in order, a bounded number ahead.

  Args:
    batches: documents.
    options: how.
    workers: processes, >= 1; one does the work in this process.
  """
  if workers == 1:
    vocabulary = load_vocabulary(options.vocab, options.lowercase)
    yield from (encode(batch, vocabulary, options) for batch in batches)
    return
  context = multiprocessing.get_context('spawn')  # TensorFlow's threads do not survive a fork
  pool = concurrent.futures.ProcessPoolExecutor(workers, context, _start, (options,))
  with pool:
    ahead: collections.deque[concurrent.futures.Future] = collections.deque()
    try:
      for batch in batches:
        ahead.append(pool.submit(_work, batch))
        if len(ahead) > 2 * workers:
          yield ahead.popleft().result()
      while ahead:
        yield ahead.popleft().result()
    finally:
      for future in ahead:
        future.cancel()


_worker: tuple[Vocabulary, Options]


def _start(options: Options) -> None:
  global _worker
  signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's to handle
  threading.Thread(target=_end_with_parent, daemon=True).start()
  os.environ['TOKENIZERS_PARALLELISM'] = 'false'  # the processes are the parallelism
  _worker = load_vocabulary(options.vocab, options.lowercase), options


def _end_with_parent() -> None:
  """A killed parent cannot stop its workers, and they would wait for it for ever."""
  parent = multiprocessing.parent_process()
  assert parent is not None
  multiprocessing.connection.wait([parent.sentinel])
  os._exit(1)


def _work(batch: list[bytes]) -> Encoded:
  return encode(batch, *_worker)
