"""Stores in memory for the tests of plans and corruptions."""

import dataclasses

import numpy as np
from ml_collections import ConfigDict

from bertjax.data import layout

SPECIAL = dict(pad=0, unk=1, cls=2, sep=3, mask=4)
XLNET_EOD = 7
MASK = SPECIAL['mask']
VOCABULARY = 1000


@dataclasses.dataclass
class MemoryStore:
  """The part of the store's interface that plans and corruptions use."""

  tokens: np.ndarray
  sentences: np.ndarray
  documents: np.ndarray
  special: dict
  word_starts: np.ndarray
  counts: np.ndarray
  units: np.ndarray | None = None
  path: str = 'memory'
  columns: dict = dataclasses.field(default_factory=dict)
  languages: tuple = ()

  def column(self, name):
    if name not in self.columns:
      raise ValueError(f'{self.path} has no column {name!r}')
    return self.columns[name]

  @property
  def vocabulary_size(self):
    return len(self.word_starts)

  @property
  def meta(self):
    return dict(tokens=int(self.tokens.sum()), sentences=len(self.sentences), special=self.special)

  def gather(self, start_n, length_n):
    owner, offset = layout.ragged(np.asarray(length_n))
    return self.tokens[np.asarray(start_n)[owner] + offset].astype(np.int32)

  def gather_units(self, start_n, length_n):
    owner, offset = layout.ragged(np.asarray(length_n))
    return self.units[np.asarray(start_n)[owner] + offset]

  def check_units(self):
    if self.units is None:
      raise ValueError('no units')


def with_units(store, seed=0):
  """The store with random units: some words begin a phrase, some go on with what is before them."""
  draw = np.random.default_rng(seed)
  starts_n = store.word_starts[store.tokens]
  kind_n = draw.choice([0, 1, 2], len(store.tokens), p=[0.2, 0.6, 0.2])
  units_n = np.where(starts_n, kind_n, 0).astype(np.uint8)
  units_n[store.sentences[:-1]] = 1
  return dataclasses.replace(store, units=units_n)


def random_store(documents=60, sentences=12, words=9, seed=0, distinct=False):
  """A store of random sizes around these means; distinct tokens number themselves 5, 6, .."""
  draw = np.random.default_rng(seed)
  sentences_n = 1 + draw.poisson(sentences - 1, documents)
  length_n = 1 + draw.geometric(1 / words, sentences_n.sum())
  total = int(length_n.sum())
  tokens = np.arange(5, 5 + total) if distinct else draw.integers(5, VOCABULARY, total)
  vocabulary = max(VOCABULARY, 5 + total) if distinct else VOCABULARY
  starts = draw.random(vocabulary) < 0.7
  starts[:5] = True
  offsets = lambda n: np.concatenate([[0], np.cumsum(n)]).astype(np.int64)
  counts = np.bincount(tokens, minlength=vocabulary)
  return MemoryStore(tokens, offsets(length_n), offsets(sentences_n), dict(SPECIAL), starts, counts)


def recipe(**changes):
  """`config.data` with BERT's values; `mask__rule='roberta'` changes one of the mask block."""
  r = ConfigDict(
    dict(
      plan='pairs',
      dupe_factor=2,
      short_prob=0.1,
      pack=False,
      max_examples=8,
      language_alpha=None,
      language_block=1,
      languages=(),
      corrupt='bert',
      mask=dict(
        rule='bert',
        rate=0.15,
        mask_share=0.8,
        random_share=0.1,
        whole_word=False,
        static=True,
        max_targets=0,
        special_ids=0,
      ),
    )
  )
  for name, value in changes.items():
    block, _, field = name.rpartition('__')
    (r[block] if block else r)[field] = value
  return r


def roberta(**changes):
  """`config.data` with RoBERTa's values."""
  values = dict(
    plan='full_sentences', mask__rule='roberta', mask__static=False, mask__special_ids=4
  )
  return recipe(**(values | changes))


def ngrams(**changes):
  """`config.data` with ALBERT's masking."""
  values = dict(
    corrupt='albert_ngrams', mask__whole_word=True, mask__ngram=3, mask__favor_longer=False
  )
  return recipe(**(values | changes))


def albert(**changes):
  """`config.data` with ALBERT's pairs and masking."""
  return ngrams(**(dict(plan='order_pairs', random_b=True) | changes))


def electra(**changes):
  """`config.data` with ELECTRA's masking."""
  values = dict(
    corrupt='electra',
    mask__static=False,
    mask__mask_share=0.85,
    mask__random_share=0.0,
    mask__replacement=True,
  )
  return recipe(**(values | changes))


def spans(**changes):
  """`config.data` with SpanBERT's blocks and masking."""
  values = dict(
    plan='spanbert_blocks',
    keep_block=False,
    corrupt='spanbert',
    mask__rule='spans',
    mask__static=False,
    mask__max_words=10,
    mask__geometric_p=0.2,
    mask__entity_prob=0.0,
    mask__max_pair_targets=15,
  )
  return recipe(**(values | changes))


def xlm(**changes):
  """`config.data` with XLM's masking, over RoBERTa's blocks."""
  values = dict(
    plan='full_sentences',
    corrupt='xlm',
    mask__static=False,
    mask__alpha=0.0,
    mask__block=32,
  )
  return recipe(**(values | changes))


def ernie(**changes):
  """`config.data` with ERNIE's pairs and masking, and the fields of its dialogues."""
  values = dict(
    plan='ernie_pairs',
    corrupt='ernie',
    halves=False,
    turns=3,
    fake_prob=0.5,
    mask__static=False,
    mask__special_ids=1,
    mask__word_prob=0.5,
    mask__block=1,
  )
  return recipe(**(values | changes))


def spoken(store, languages=3, runs=5, pairs=0, seed=0):
  """The store with languages, in so many runs of documents, and the last documents as pairs."""
  draw, documents = np.random.default_rng(seed), len(store.documents) - 1
  mono = documents - pairs
  language_D = np.arange(documents) * runs // max(mono, 1) % languages
  language_S = np.repeat(language_D, np.diff(store.documents)).astype(np.uint8)
  if pairs:
    first = store.documents[mono]
    store.documents = np.concatenate([store.documents[:mono], first + 2 * np.arange(pairs + 1)])
    store.sentences = store.sentences[: store.documents[-1] + 1]
    language_S = language_S[: store.documents[-1]]
    source_n = draw.integers(0, languages, pairs)
    target_n = (source_n + draw.integers(1, languages, pairs)) % languages
    language_S[first:] = np.stack([source_n, target_n], 1).ravel()
  store.columns = dict(language=language_S)
  store.languages = ('ar', 'de', 'en', 'fr')[:languages]
  return store


def segments(**changes):
  """`config.data` with ELECTRA's examples and masking."""
  values = dict(plan='electra_segments', short_prob=0.05, one_segment_prob=0.1, rejoin=True)
  return electra(**(values | changes))


def xlnet(**changes):
  """`config.data` with XLNet's rows and permutations, for rows of 48 tokens."""
  values = dict(
    plan='xlnet_columns', corrupt='xlnet_permutation', lanes=4, reuse_len=20, both_directions=True,
    perm_size=4, mask__max_words=5, mask__context=6, mask__static=False,
  )  # fmt: skip
  return recipe(**(values | changes))


def continued(**changes):
  """`config.data` with Transformer-XL's rows, of 4 columns."""
  values = dict(plan='lm_columns', corrupt='causal', lanes=4, ends='', shuffle_documents=False)
  return recipe(**(values | changes))


def xlnet_store(documents=40, **sizes):
  """Random text whose ids 5 .. 9 are special, one of them the end of a document."""
  store = random_store(documents, distinct=True, **sizes)
  store.special['eod'] = XLNET_EOD
  store.tokens = store.tokens + 5  # the ids 5 .. 9 are special
  store.word_starts = np.append(store.word_starts, np.ones(5, bool))
  return store
