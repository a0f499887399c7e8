"""ALBERT's pairs against the algorithm written out sentence by sentence."""

import numpy as np
import pytest
import sequential_pairs
from mutation import mutation
from sequential_pairs import KeyedDraws, as_lists, sequential
from toy_store import albert, random_store, spec_of

from bertjax.examples.plans import order_pairs, pairs
from bertjax.store.npy_files import join_columns


def one_pair(documents, d, chunk, target, draw):
  """((A, B, label), sentences to put back) of a chunk (google-research/albert)."""
  if len(chunk) == 1:
    return sequential_pairs.one_pair(documents, d, chunk, target, draw)
  a_end = 1 + draw.below(pairs._A_END, len(chunk) - 1)
  a, b = sum(chunk[:a_end], []), sum(chunk[a_end:], [])
  return ((b, a, 1) if draw.uniform(pairs._COIN) < 0.5 else (a, b, 0)), 0


def planned(store, config, length, seed=3, **kwargs):
  _, spec = spec_of(config, length, seed)
  return join_columns(order_pairs.build(store, spec, **kwargs))


def instances(store, column):
  return sequential_pairs.instances(store, column, order_pairs.PLAN, 'order')


@pytest.mark.parametrize('length', [16, 64])
@mutation('columns[task.name] = changed_n', 'columns[task.name] = random_n')
@mutation('random_n = alone_n if task.swap else changed_n', 'random_n = changed_n')
@mutation('b_n, usable)', 'b_n, usable)\n  b_lost_n, a_lost_n = layout.truncated(b_n, a_n, usable)')
def test_equals_the_sequential_algorithm_on_the_same_draws(length):
  store, config = random_store(25, distinct=True), albert(plan__dupe_factor=3, plan__short_prob=0.4)
  passes = [
    sequential(as_lists(store), KeyedDraws(3, turn), length - 3, 0.4, one_pair) for turn in range(3)
  ]
  ours = instances(store, planned(store, config, length)[0])
  assert sorted(ours) == sorted(sum(passes, []))


@mutation('least=1 if spec.options.random_b else 2', 'least=1')
def test_without_random_b_the_label_is_the_order_and_nothing_else():
  store = random_store(60, sentences=4, distinct=True)
  column, count = planned(store, albert(plan__random_b=False), 32)
  document_of = np.repeat(np.arange(60), np.diff(store.sentences[store.documents]))
  for a, b, label in instances(store, column):
    assert document_of[a[0] - 5] == document_of[b[0] - 5]
    assert label == (a[0] > b[0])
  assert count['random_next'] == 0
  assert abs(column['order'].mean() - 0.5) < 4 * 0.5 / np.sqrt(len(column['order']))

  quirk, count = planned(store, albert(), 32)
  pairs_of = instances(store, quirk)
  alone = [label for a, b, label in pairs_of if document_of[a[0] - 5] != document_of[b[0] - 5]]
  assert all(alone) and 0 < len(alone) <= count['random_next']


def test_lone_sentences_are_counted_and_the_rest_appears():
  store = random_store(40, sentences=3, distinct=True)
  config = albert(plan__random_b=False, plan__dupe_factor=1, plan__short_prob=0.0)
  for window in (pairs.WINDOW, 1):  # some documents are a window, and have one sentence
    column, count = planned(store, config, 4096, window=window)
    seen = {token for a, b, _ in instances(store, column) for token in a + b}
    first_n, last_n = store.documents[:-1], store.documents[1:]
    lone_n = first_n[last_n - first_n == 1]
    assert 0 < len(lone_n) == count['lone_sentences']
    lost = [store.tokens[store.sentences[i] : store.sentences[i + 1]] for i in lone_n]
    assert seen == set(store.tokens.tolist()) - set(np.concatenate(lost).tolist())
