"""BERT's pairs against the algorithm written out sentence by sentence (google-research/bert)."""

import numpy as np
import pytest
from mutation import mutation
from sequential_pairs import KeyedDraws, as_lists, instances, one_pair, sequential
from tiers import in_tiers
from toy_store import albert, random_store, recipe, spec_of, spoken

from bertjax.examples.plans import order_pairs, pairs
from bertjax.store.npy_files import join_columns


@pytest.mark.parametrize('length', [16, 64])
@pytest.mark.parametrize('documents', [2, 25])
@mutation('+ rest_n // 2, b_first_n + (rest_n + 1) /', '+ (rest_n + 1) // 2, b_first_n + rest_n /')
@mutation('b_first_n + (rest_n + 1) // 2', 'b_first_n + rest_n // 2')
@mutation('np.clip(a_n - b_n, 0, excess_n)', '0 * excess_n')
@mutation('< spec.options.short_prob', '< 0.0')
def test_equals_the_sequential_algorithm_on_the_same_draws(length, documents):
  store = random_store(documents, distinct=True)
  _, spec = spec_of(recipe(plan__dupe_factor=3, plan__short_prob=0.4), length, 3)
  ours = instances(store, join_columns(pairs.build(store, spec))[0])
  passes = [sequential(as_lists(store), KeyedDraws(3, turn), length - 3, 0.4) for turn in range(3)]
  assert sorted(ours) == sorted(sum(passes, []))


LEFT_OUT = 2


def within_languages(sizes):
  """`one_pair` where random text is of the same language: so many documents have each, one after
  the other. Where it would be the document's own the label is LEFT_OUT."""
  mates = [range(sum(sizes[:i]), sum(sizes[: i + 1])) for i in range(len(sizes))]

  def pair(documents, d, chunk, target, draw):
    mine = next(each for each in mates if d in each)
    (a, b, label), unused = one_pair([documents[i] for i in mine], d - mine[0], chunk, target, draw)
    own = label == 1 and any(b == sum(documents[d][i:j], []) for i in range(len(documents[d]))
                             for j in range(i + 1, len(documents[d]) + 1))  # fmt: skip
    return (a, b, LEFT_OUT if own else label), unused

  return pair


@pytest.mark.parametrize('sizes', in_tiers([(3, 2, 1), (1, 4), (6, 1, 1)], [(1, 4), (6, 1, 1)]))
@mutation('store.sentences[stop_n], other_n == document_n', 'store.sentences[stop_n], other_n < 0')
@mutation('place_n = self.start_l[language_n] + counter_rng', 'place_n = draws')
def test_random_text_is_of_another_document_of_the_language_or_left_out(sizes):
  store = random_store(sum(sizes), sentences=30, distinct=True)
  of_document = np.repeat(np.arange(len(sizes)), sizes)
  store.columns = dict(language=np.repeat(of_document, np.diff(store.documents)).astype(np.uint8))
  _, spec = spec_of(recipe(plan__dupe_factor=3), 64, 3)
  column, count = join_columns(pairs.build(store, spec))
  said = within_languages(sizes)
  passes = [sequential(as_lists(store), KeyedDraws(3, t), 61, 0.1, said) for t in range(3)]
  kept = [pair for pair in sum(passes, []) if pair[2] != LEFT_OUT]
  assert sorted(instances(store, column)) == sorted(kept)
  assert count['no_other_document'] == len(sum(passes, [])) - len(kept) > 0
  assert count['random_next'] == sum(label for _, _, label in kept) > 0
  document_n = np.searchsorted(store.sentences[store.documents], column['a_start'], 'right') - 1
  np.testing.assert_array_equal(column['group'], of_document[document_n])


def test_order_pairs_leave_out_lone_sentences_without_another_document():
  store = spoken(random_store(9, sentences=3, distinct=True), languages=3, runs=3)
  store.columns['language'][: store.documents[7]] = 0  # of the others there is one document each
  store.columns['language'][store.documents[7] : store.documents[8]] = 1
  store.columns['language'][store.documents[8] :] = 2
  _, spec = spec_of(albert(plan__dupe_factor=9), 24, 3)
  column, count = join_columns(order_pairs.build(store, spec))
  document = lambda start: np.searchsorted(store.sentences[store.documents], start, 'right')
  own = document(column['a_start']) == document(column['b_start'])
  after_a = np.abs(column['b_start'] - column['a_start'])[own]
  assert (column['group'][~own] == 0).all() and count['random_next'] == (~own).sum() > 0
  assert count['no_other_document'] > 0 and (after_a > 0).all()
