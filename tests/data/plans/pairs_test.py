"""BERT's pairs against the algorithm written out sentence by sentence (google-research/bert)."""

import random

import numpy as np
import pytest
from toy_store import random_store, recipe, spoken

from bertjax.data import counter_rng
from bertjax.data.plans import pairs
from bertjax.data.store.npy_files import join_columns


class KeyedDraws:
  """The draws of the plan, one at a time."""

  def __init__(self, seed, turn):
    self.turn_key = counter_rng.fold(counter_rng.root(seed, 'pairs'), turn)

  def document(self, document):
    self.key = counter_rng.fold(counter_rng.fold(self.turn_key, pairs._TARGET), document)
    return self

  def chunk(self, sentence):
    self.key = counter_rng.fold(counter_rng.fold(self.turn_key, pairs._CHUNK), sentence)

  def uniform(self, site):
    return float(counter_rng.uniform(counter_rng.fold(self.key, site))[0])

  def below(self, site, bound):
    return int(counter_rng.below(counter_rng.fold(self.key, site), bound)[0])

  def other(self, attempt, bound):
    key = counter_rng.fold(counter_rng.fold(self.key, pairs._OTHER), attempt)
    return int(counter_rng.below(key, bound)[0])

  def fronts(self, site, count):
    """Of `count` removals, how many are from the front."""
    return int(counter_rng.coin_flips(counter_rng.fold(self.key, site), np.array([count]))[0])


class FreeDraws:
  """Python's own generator in the same roles."""

  def __init__(self, seed):
    self.random = random.Random(seed)

  def document(self, document):
    return self

  def chunk(self, sentence):
    pass

  def uniform(self, site):
    return self.random.random()

  def below(self, site, bound):
    return self.random.randrange(bound)

  def other(self, attempt, bound):
    return self.random.randrange(bound)

  def fronts(self, site, count):
    return sum(self.random.random() < 0.5 for _ in range(count))


def sequential(documents, draw, usable, short_prob, pair_of=None):
  """create_instances_from_document, with (tokens of A, tokens of B, label) for every instance."""
  out, at = [], 0
  for d, document in enumerate(documents):
    draw.document(d)
    target = usable
    if draw.uniform(0) < short_prob:
      target = 2 + draw.below(1, usable - 1)
    chunk, size, i = [], 0, 0
    while i < len(document):
      chunk.append(document[i])
      size += len(document[i])
      if i == len(document) - 1 or size >= target:
        draw.chunk(at + i + 1 - len(chunk))
        pair, unused = (pair_of or one_pair)(documents, d, chunk, target, draw)
        out.append(truncate(*pair, usable, draw))
        i -= unused
        chunk, size = [], 0
      i += 1
    at += len(document)
  return out


def one_pair(documents, d, chunk, target, draw):
  a_end = 1
  if len(chunk) >= 2:
    a_end = 1 + draw.below(pairs._A_END, len(chunk) - 1)
  a = sum(chunk[:a_end], [])
  if len(chunk) > 1 and draw.uniform(pairs._COIN) >= 0.5:
    return (a, sum(chunk[a_end:], []), 0), 0
  for attempt in range(10):
    other = draw.other(attempt, len(documents))
    if other != d:
      break
  b = []
  for sentence in documents[other][draw.below(pairs._START, len(documents[other])) :]:
    b = b + sentence
    if len(b) >= target - len(a):
      break
  return (a, b, 1), len(chunk) - a_end


def truncate(a, b, label, usable, draw):
  lost = [0, 0]
  while len(a) + len(b) - sum(lost) > usable:
    lost[0 if len(a) - lost[0] > len(b) - lost[1] else 1] += 1
  out = []
  for tokens, count, site in ((a, lost[0], pairs._FRONT_A), (b, lost[1], pairs._FRONT_B)):
    front = draw.fronts(site, count)
    out.append(tokens[front : len(tokens) - (count - front)])
  return (*out, label)


def as_lists(store):
  s, d = store.sentences, store.documents
  return [
    [store.tokens[s[i] : s[i + 1]].tolist() for i in range(d[j], d[j + 1])]
    for j in range(len(d) - 1)
  ]


def planned(store, config, length, seed=3, **kwargs):
  column, _ = join_columns(pairs.build(store, config, length, seed, **kwargs))
  return column


def instances(store, column, assemble=pairs.assemble, label='next'):
  """(A, B, label) of every planned example, read back from the assembled tokens."""
  text = assemble(store, column)
  bounds = np.cumsum(text.length_E)[:-1]
  out = []
  for token, kind, found in zip(
    np.split(text.token_n, bounds), np.split(text.type_n, bounds), text.label[label], strict=True
  ):
    first = int((kind == 0).sum())
    assert token[0] == store.special['cls'] and token[first - 1] == token[-1]
    assert token[-1] == store.special['sep']
    out.append((token[1 : first - 1].tolist(), token[first:-1].tolist(), int(found)))
  return out


@pytest.mark.parametrize('length', [16, 64, 128])
@pytest.mark.parametrize('documents', [2, 25])
def test_equals_the_sequential_algorithm_on_the_same_draws(length, documents):
  store, config = random_store(documents, distinct=True), recipe(dupe_factor=3, short_prob=0.4)
  ours = instances(store, planned(store, config, length))
  passes = [sequential(as_lists(store), KeyedDraws(3, turn), length - 3, 0.4) for turn in range(3)]
  assert sorted(ours) == sorted(sum(passes, []))


def test_distribution_equals_the_sequential_algorithm_with_another_generator():
  store, config = random_store(150, distinct=True), recipe(dupe_factor=12)
  column = planned(store, config, 48)
  theirs = [pair for s in range(12) for pair in sequential(as_lists(store), FreeDraws(s), 45, 0.1)]
  figures = lambda a, b, label: (len(a), len(b), label, len(a) + len(b) == 45)
  ours_nf = np.array([figures(*pair) for pair in instances(store, column)], float)
  theirs_nf = np.array([figures(*pair) for pair in theirs], float)
  assert abs(len(ours_nf) / len(theirs_nf) - 1) < 0.04  # 2 standard errors: short targets vary
  spread = np.sqrt(ours_nf.var(0) / len(ours_nf) + theirs_nf.var(0) / len(theirs_nf))
  assert (abs(ours_nf.mean(0) - theirs_nf.mean(0)) < 4 * spread).all()
  assert column['next'].mean() > 0.5  # single sentences are always random


def test_does_not_depend_on_the_window():
  store, config = random_store(80), recipe()
  whole = planned(store, config, 64)
  for window in (1, 37, 200):
    pieces = planned(store, config, 64, window=window)
    for name in whole:
      np.testing.assert_array_equal(pieces[name], whole[name])


def test_every_token_appears_where_nothing_is_truncated():
  """What a random next leaves over is put back, so that only truncation loses text."""
  store = random_store(40, distinct=True)
  column = planned(store, recipe(dupe_factor=1, short_prob=0.0), 4096)
  seen = {token for a, b, _ in instances(store, column) for token in a + b}
  assert seen == set(store.tokens.tolist())


def test_labels_tell_next_from_random():
  store = random_store(30, distinct=True)
  document_of = np.repeat(np.arange(30), np.diff(store.sentences[store.documents]))
  for a, b, label in instances(store, planned(store, recipe(), 64)):
    same = document_of[a[0] - 5] == document_of[b[0] - 5]
    assert same == (label == 0)
    if label == 0:
      assert b[0] > a[-1]


def test_passes_and_seeds_differ_and_repeat():
  store = random_store(50)
  one, again = planned(store, recipe(dupe_factor=1), 64), planned(store, recipe(dupe_factor=1), 64)
  other = planned(store, recipe(dupe_factor=1), 64, seed=4)
  two = planned(store, recipe(dupe_factor=2), 64)
  assert all((one[name] == again[name]).all() for name in one)
  assert len(other['length']) != len(one['length']) or (other['length'] != one['length']).any()
  starts = lambda column: set(zip(column['a_start'], column['b_start'], strict=True))
  assert starts(one) < starts(two)


def test_truncation_counts_are_those_of_one_by_one():
  for a in range(0, 14):
    for b in range(0, 14):
      for limit in range(0, 20):
        x, y = a, b
        while x + y > limit:
          x, y = (x - 1, y) if x > y else (x, y - 1)
        lost = pairs.truncated(np.array([a]), np.array([b]), limit)
        assert (a - lost[0][0], b - lost[1][0]) == (x, y), (a, b, limit)


def test_truncation_takes_from_both_ends():
  store = random_store(200, words=60, distinct=True)
  column = planned(store, recipe(dupe_factor=1), 32)
  begins = set((store.sentences + 5).tolist())
  cut_front = np.array([a[0] not in begins for a, _, _ in instances(store, column)])
  assert 0.5 < cut_front.mean() < 1.0
  assert (column['length'] <= 32).all()


def test_a_single_document_is_refused():
  with pytest.raises(ValueError, match='at least 2 documents, got 1.*full_sentences'):
    planned(random_store(1), recipe(), 64)
  with pytest.raises(ValueError, match='length >= 5'):
    planned(random_store(3), recipe(), 4)


def languages_of(store, column):
  """The languages of the first and the second segment of each pair."""
  at = lambda start: np.searchsorted(store.sentences, start, 'right') - 1
  language_S = store.columns['language']
  return language_S[at(column['a_start'])], language_S[at(column['b_start'])]


def test_a_random_segment_is_of_the_same_language():
  store = spoken(random_store(80, distinct=True), runs=8)
  column, _ = join_columns(pairs.build(store, recipe(), 64, 0))
  a_E, b_E = languages_of(store, column)
  np.testing.assert_array_equal(a_E, b_E)
  np.testing.assert_array_equal(column['group'], a_E)
  document = lambda start: np.searchsorted(store.sentences[store.documents], start, 'right')
  random = column['next'] == 1
  others = document(column['a_start']) != document(column['b_start'])
  assert others[random].mean() > 0.99 and not others[~random].any()
  # Every document of the language is drawn from.
  drawn = set(document(column['b_start'][random]))
  assert len(drawn) > 0.9 * (len(store.documents) - 1)
