"""Stores in memory, and recipes, for the tests of plans and maskings."""

import dataclasses
import hashlib
import itertools
import json
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from bertjax import options
from bertjax.config import defaults
from bertjax.data_contracts import Chosen, Ranges, Spec
from bertjax.examples import layout, plan_and_mask, recipes
from bertjax.store.reader import Store, open_store
from bertjax.store.writer import Writer, remove_sides

SPECIAL = dict(pad=0, unk=1, cls=2, sep=3, mask=4)
XLNET_EOD = 7
MASK = SPECIAL['mask']
VOCABULARY = 1000


@dataclasses.dataclass(eq=False)
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
  meta: dict = dataclasses.field(default_factory=dict)

  numbered = Store.numbered

  def column(self, name):
    if name not in self.columns:
      raise ValueError(f'{self.path} has no column {name!r}')
    return self.columns[name]

  @property
  def vocabulary_size(self):
    return len(self.word_starts)

  @property
  def languages(self):
    return self.meta.get('languages', [])

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


def store_of(documents, special=SPECIAL, vocabulary=VOCABULARY):
  """A store of given text: documents of sentences of ids."""
  offsets = lambda parts: np.cumsum([0, *map(len, parts)]).astype(np.int64)
  sentences = [sentence for document in documents for sentence in document]
  tokens = np.concatenate(sentences)
  return MemoryStore(
    tokens, offsets(sentences), offsets(documents), dict(special), np.ones(vocabulary, bool),
    np.bincount(tokens, minlength=vocabulary),
  )  # fmt: skip


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
  store.meta['languages'] = ['ar', 'de', 'en', 'fr'][:languages]
  return store


def on_disk(path, special=None, parts=1, units=False, vocabulary=False, **kwargs):
  """A random store, written and opened.

  Args:
    path: its directory.
    special: token -> id.
    parts: how many files of tokens.
    units: whether it has units and a column `role`.
    vocabulary: whether there are files in `vocab/`.
    **kwargs: of `random_store`.
  """
  memory = random_store(**kwargs)
  writer = Writer(path, VOCABULARY, units=units, columns=('role',) if units else ())
  bounds = np.linspace(0, len(memory.documents) - 1, parts + 1).astype(int)
  for first, last in itertools.pairwise(bounds):
    documents = memory.documents[first : last + 1]
    sentences = memory.sentences[documents[0] : documents[-1] + 1]
    tokens, lengths = memory.tokens[sentences[0] : sentences[-1]], np.diff(sentences)
    also = dict(unit_n=tokens % 3, column=dict(role=lengths % 2)) if units else {}
    writer.add(tokens, lengths, np.diff(documents), **also)
    writer.cut()
  if vocabulary:
    (path / 'vocab').mkdir()
    (path / 'vocab/vocab.txt').write_text('\n'.join(map(str, range(VOCABULARY))))
  described = dict(type='test', size=VOCABULARY, sha256='', special=special or SPECIAL)
  writer.finish(memory.word_starts, dict(name='memory', vocabulary=described, source=[]))
  remove_sides(path)
  return open_store(path)


def signed(meta):
  """What store.json says, with the sha256 of its own that fits."""
  sha256 = {name: value for name, value in meta['sha256'].items() if name != 'store.json'}
  meta = dict(meta, sha256=sha256)
  own = hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()
  return dict(meta, sha256=sha256 | {'store.json': own})


def recipe(plan=recipes.BERT_PLAN, mask=recipes.BERT_MASK, **changes):
  """`config.data` of a plan and a mask.

  Args:
    plan, mask: of `bertjax.examples.recipes`; pairs make two passes.
    **changes: plan__FIELD and mask__FIELD of these two, or fields of `config.data`.
  """
  r = ConfigDict(
    dict(pack=1, language_alpha=None, language_block=1, languages=(), plan=plan, mask=mask)
  )
  if 'dupe_factor' in r.plan:
    r.plan.dupe_factor = 2
  for name, value in changes.items():
    block, _, field = name.rpartition('__')
    (r[block] if block else r)[field] = value
  for key in ('plan', 'mask'):
    found = options.fields_of(plan_and_mask.named(key, r[key].name).options)
    defaults.fill(r[key], dict(found, name=options.Field(str, True, '')), r)
  return r


def _of(plan, mask):
  """A function of changes, and of another plan or mask, of these two; see `recipe`."""
  return lambda plan=plan, mask=mask, **changes: recipe(plan, mask, **changes)


_NGRAMS = recipes.ALBERT_MASK | dict(max_targets=0)  # 15% of the tokens
roberta = _of(recipes.ROBERTA_PLAN, recipes.ROBERTA_MASK)
ngrams = _of(recipes.BERT_PLAN, _NGRAMS)
albert = _of(recipes.ALBERT_PLAN, _NGRAMS)
electra = _of(recipes.BERT_PLAN, recipes.ELECTRA_MASK)
segments = _of(recipes.ELECTRA_PLAN, recipes.ELECTRA_MASK)
spans = _of(recipes.SPANBERT_PLAN, recipes.SPANBERT_MASK)
xlm = _of(recipes.ROBERTA_PLAN, recipes.XLM_MASK)
distilbert = _of(recipes.DISTILBERT_PLAN, recipes.DISTILBERT_MASK)
# Every row has its coin.
ernie = _of(recipes.ERNIE_PLAN | dict(halves=False), recipes.ERNIE_MASK | dict(block=1))
DIALOGUES = dict(name='dialogues', turns=3, fake_prob=0.5)
WHOLE_DOCUMENTS = dict(name='blocks', break_mode='complete_doc', separator=True)
ANYWHERE = dict(name='blocks', break_mode='none', separator=True)


def xlnet(**changes):
  """XLNet's rows and permutations, for rows of 48 tokens."""
  plan = dict(name='xlnet_columns', reuse_len=20, both_directions=True)
  mask = dict(
    name='xlnet_permutation', reuse_len=20, perm_size=4, context=6, max_words=5,
    static=False, max_targets=0,
  )  # fmt: skip
  return recipe(plan, mask, **changes)


def xlnet_store(documents=40, **sizes):
  """Random text whose ids 5 .. 9 are special, one of them the end of a document."""
  store = random_store(documents, distinct=True, **sizes)
  store.special['eod'] = XLNET_EOD
  store.tokens = store.tokens + 5  # the ids 5 .. 9 are special
  store.word_starts = np.append(store.word_starts, np.ones(5, bool))
  return store


def continued(**changes):
  """Transformer-XL's rows."""
  plan = dict(name='lm_columns', ends='', shuffle_documents=False)
  return recipe(plan, recipes.CAUSAL_MASK, **changes)


def spec_of(data, length, seed=0, rows=0):
  """The plan module, the masking module and the `Spec` of a recipe."""
  opened = plan_and_mask.open_recipe(data)
  return opened.plan, Spec(opened.plan_options, length, seed, rows)


class Laid(NamedTuple):
  """Examples with their tokens gathered; see `Ranges`."""

  token_n: np.ndarray
  type_n: np.ndarray
  length_E: np.ndarray
  position_n: np.ndarray
  ranges: Ranges
  after_E: np.ndarray | None


def laid(store, plan, spec, column=None, index_E=None, epoch=0, shuffle=False):
  """The examples of these columns, or of these rows of an ordered plan, end to end."""
  index_E = np.arange(len(column['length'])) if index_E is None else index_E
  ranges = plan.ranges(store, spec, Chosen(column or {}, index_E, epoch, shuffle))
  rows = layout.lay_out(
    ranges, store, np.arange(len(index_E)), np.zeros(len(index_E), np.uint64),
    (len(index_E), spec.length),
  )  # fmt: skip
  type_n = np.zeros(len(rows.token_n), np.int32) if ranges.type_n is None else ranges.type_n
  position_n = rows.position_n if ranges.position_n is None else ranges.position_n
  return Laid(rows.token_n, type_n, ranges.length_E, position_n, ranges, rows.after_E)
