"""Made-up text in memory, and batches of it that a config's own plan and masking make."""

import pathlib
from typing import Any

import numpy as np

from bertjax.examples.examples import Examples, examples_in_memory, tables_of
from bertjax.store.reader import Store
from bertjax.types import Batch

LANGUAGES = 15  # of a table of languages whose rows the config leaves to the store: XLM-15's
SPECIAL = dict(pad=0, unk=1, cls=2, sep=3, mask=4, eod=5)
SENTENCE = (12, 36)  # tokens, from and to


def synthetic_batch(config: Any, store: Store | None = None) -> Batch:
  """Returns the second batch of a store, or of made-up text without one, so that rows that go on do
  so."""
  rows = config.batch_size
  batch = examples_of(config, store).batch(np.arange(rows, 2 * rows), shuffle=False)
  batch.pop('dropped_B')
  return batch


def examples_of(config: Any, store: Store | None = None) -> Examples:
  """Returns the examples of a store, or of made-up text of six batches without one."""
  data, rows = config.data, config.batch_size
  store = store or made_up(
    config.model.vocab_size,
    6 * rows * config.length,
    2 * config.length,
    data.languages,
    config.seed,
  )
  return examples_in_memory(store, data, config.length, config.seed, rows, tables_of(config.model))


def made_up(
  vocab_size: int, tokens: int, document: int, languages: tuple[str, ...], seed: int
) -> Store:
  """Returns a store of random text with all that a plan or a masking may ask for, in documents of
  about so many tokens. Ids are as frequent as Zipf's law has them, which is what clusters of words
  cost. Every document has a language, one of LANGUAGES if none is named; one in sixteen is a pair
  of sentences in two."""
  rng, mean = np.random.default_rng(seed), sum(SENTENCE) // 2
  each = max(document // mean, 4)
  documents = tokens // (each * mean) + 16
  size_D = np.where(np.arange(documents) % 16 == 15, 2, each)
  length_S = rng.integers(*SENTENCE, int(size_D.sum()))
  first, total = len(SPECIAL), int(length_S.sum())
  token_n = first - 1 + ((vocab_size - first) ** rng.random(total)).astype(np.int32)
  starts = np.append(np.ones(first, bool), rng.random(vocab_size - first) < 0.8)
  names = languages or tuple(map(str, range(LANGUAGES)))
  document_S = np.repeat(np.arange(documents), size_D)
  place_S = np.arange(len(length_S)) - np.repeat(np.cumsum(size_D) - size_D, size_D)
  pair_S = size_D[document_S] == 2
  language_S = (document_S + place_S * pair_S) % len(names)
  sentinels = list(range(vocab_size - 1, max(vocab_size - 101, first), -1))
  pieces = [f'word{number}' for number in range(vocab_size)]
  vocabulary = dict(size=vocab_size, special=SPECIAL, sentinels=sentinels, pieces=pieces)
  return Store(
    path=pathlib.Path('made-up text'),
    meta=dict(name='made-up text', vocabulary=vocabulary, languages=list(names)),
    sentences=np.append(0, np.cumsum(length_S)),
    documents=np.append(0, np.cumsum(size_D)),
    counts=np.bincount(token_n, minlength=vocab_size),
    word_starts=starts,
    parts=(token_n,),
    units=(starts[token_n].astype(np.uint8),),
    columns=dict(language=language_S.astype(np.uint8), role=(place_S % 2).astype(np.uint8)),
  )
