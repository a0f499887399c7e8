"""Text that is streamed, as windows of documents, each a token store in memory.

`tasks` makes example Tasks of them. Only NumPy is used here.
"""

import dataclasses
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from bertjax import counter_rng
from bertjax.examples.examples import examples_in_memory
from bertjax.store.encode import Options, encode
from bertjax.store.reader import Store
from bertjax.text.documents import COLUMNS
from bertjax.vocab.vocabulary import Vocabulary

WINDOW = 4096  # documents
_MOST = 2**25  # bytes of documents that wait
_PROBE_SPECIAL = dict(pad=0, unk=1, cls=2, sep=3, mask=4)


def windows(documents: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
  """Groups documents by `size`, and long ones by less, by two at least; what is left over goes to
  the last window, which has up to twice as many, so that no window is too small for a plan."""
  window, held = [], 0
  for document in documents:
    window.append(document)
    held += len(document)
    if len(window) == 2 * size or (held > _MOST and len(window) >= 4):
      half = -(-len(window) // 2)
      yield window[:half]
      held -= sum(map(len, window[:half]))
      del window[:half]
  if window:
    yield window


def window_seed(seed: int, window: int) -> int:
  """Returns the seed of a window; of the first the seed itself, as a store of all that text."""
  return int(counter_rng.fold(counter_rng.root(seed, 'window'), window)[0]) if window else seed


def encode_store(
  name: str, documents: list[bytes], vocabulary: Vocabulary, options: Options
) -> Store:
  """Returns a store in memory of these documents: what `prepare` writes of them, none held out."""
  encoded = encode(documents, vocabulary, options)
  size_D = encoded.size_D[encoded.size_D > 0]
  meta, starts = vocabulary.meta, vocabulary.word_starts
  store = _in_memory(name, encoded.token_n, encoded.length_S, size_D, meta, starts)
  return dataclasses.replace(
    store,
    meta=dict(store.meta, languages=list(encoded.languages)),
    units=() if encoded.unit_n is None else (encoded.unit_n,),
    columns=encoded.column,
  )


def without_text(
  name: str, meta: Mapping[str, Any], word_starts: np.ndarray | None = None
) -> Store:
  """Returns a store without text, of a vocabulary of this `Vocabulary.meta`; word_starts, bool by
  its ids, are all True where they are not known."""
  none = np.zeros(0, np.int64)
  starts = np.ones(meta['size'], bool) if word_starts is None else word_starts
  return _in_memory(name, none.astype(np.int32), none, none, meta, starts)


def probe(recipe: Any, length: int) -> dict[str, np.ndarray]:
  """Returns one row of made-up text: its names, dtypes and shapes are those of all rows of the
  recipe (`config.data`). Raises UserError: a plan, masking or length that does not work."""
  length_S, size_D = np.full(8, max(length // 2, 1)), np.full(2, 4)
  token_n = np.full(int(length_S.sum()), 1 << 14, np.int32)
  marks = [*range((1 << 15) - 1, 1 << 14, -1)]  # as many sentinels as any row may ask for
  vocabulary = dict(size=1 << 15, special=_PROBE_SPECIAL, sentinels=marks)
  starts = np.ones(1 << 15, bool)
  store = _in_memory('made-up text', token_n, length_S, size_D, vocabulary, starts)
  columns = {name: np.zeros(len(length_S), np.uint8) for name in COLUMNS}
  units = (np.ones(len(token_n), np.uint8),)
  meta = dict(store.meta, languages=list(recipe.languages))
  store = dataclasses.replace(store, meta=meta, units=units, columns=columns)
  return examples_in_memory(store, recipe, length, seed=0).batch(np.zeros(1, np.int64), False)


def feature_name(key: str) -> str:
  """Returns the name of a batch's array as a feature of one example: token_BT -> token_T."""
  name, axes = key.rsplit('_', 1)
  return f'{name}_{axes[1:]}' if axes[1:] else name


def batch_name(feature: str, rank: int) -> str:
  """Returns the inverse of `feature_name`; `rank` is that of one example's feature."""
  if not rank:
    return f'{feature}_B'
  name, axes = feature.rsplit('_', 1)
  return f'{name}_B{axes}'


def _in_memory(name, token_n, length_S, size_D, vocabulary, word_starts) -> Store:
  offsets = lambda size_n: np.append(0, np.cumsum(size_n, dtype=np.int64))
  return Store(
    path=pathlib.Path(name),
    meta=dict(name=name, vocabulary=vocabulary, languages=[]),
    sentences=offsets(length_S),
    documents=offsets(size_D),
    counts=np.bincount(token_n, minlength=vocabulary['size']),
    word_starts=word_starts,
    parts=(token_n,),
  )
