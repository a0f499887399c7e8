"""SpanBERT's spans: lengths, budgets, whole words, one decision per span, boundary pairs."""

import numpy as np
import pytest
from masking import corrupted, masked, placed
from mutation import mutation
from toy_store import MASK, SPECIAL, random_store, spans, with_units

from bertjax import counter_rng
from bertjax.examples import examples as examples_lib
from bertjax.examples import recipes
from bertjax.examples.noise import spanbert as rule


def runs(batch, row):
  """(first, last, slot of the first) of the runs of targets in a row."""
  at = batch['target_pos_BP'][row][batch['weight_BP'][row] > 0]
  cut = np.flatnonzero(np.diff(at) > 1)
  first, last = np.append(0, cut + 1), np.append(cut, len(at) - 1)
  return list(zip(at[first].tolist(), at[last].tolist(), first.tolist(), strict=True))


def test_lengths_have_the_truncated_geometric_probabilities():
  p = rule.pmf(10, 0.2)
  expected = [0.2241, 0.1792, 0.1434, 0.1147, 0.0918, 0.0734, 0.0587, 0.0470, 0.0376, 0.0301]
  np.testing.assert_allclose(p, expected, atol=5e-5)
  assert p @ np.arange(1, 11) == pytest.approx(3.797, abs=5e-4)
  assert rule.pmf(1, 0.2).tolist() == [1.0]


def sequential(config, store, rows, e):
  """The loop of PairWithSpanMaskingScheme.mask on example e, with our draws."""
  n = int(rows.length_E[e]) - 2
  first = int(rows.length_E[:e].sum()) + 1
  starts = store.word_starts[rows.token_n[first : first + n]]
  key = lambda site: counter_rng.fold(counter_rng.fold(rows.key_E[e : e + 1], site), 1)
  until = np.cumsum(rule.pmf(config.mask.max_words, config.mask.geometric_p))
  mask, turn, budget = set(), -1, int(np.ceil(0.15 * n))
  while len(mask) < budget:
    turn += 1
    u = counter_rng.uniform(counter_rng.fold(key(rule._LENGTH), turn))[0]
    words = 1 + int((u >= until[:-1]).sum())
    anchor = int(counter_rng.below(counter_rng.fold(key(rule._ANCHOR), turn), n)[0])
    if anchor in mask:
      continue
    while anchor and not starts[anchor]:
      anchor -= 1
    taken = 0
    for at in range(anchor, n):
      taken += at == anchor or bool(starts[at])
      if taken > words or len(mask) == budget:
        break
      mask.add(at)
  return sorted(at + 1 for at in mask)


@pytest.mark.parametrize('words', [1, 10])
@mutation('  begins_c[texts.first_S] = True\n', '  begins_c[:] = True\n')
@mutation('hit_S = (anchor_S < 0) | ~chosen_c[anchor_S]', 'hit_S = np.ones(len(anchor_S), bool)')
@mutation('new_n = np.flatnonzero(~chosen_c[at_n])', 'new_n = np.arange(len(at_n))')
@mutation('np.ceil(options.rate * texts.size_S)', 'np.floor(options.rate * texts.size_S)')
def test_spans_are_those_of_the_sequential_algorithm(words):
  config, store = spans(mask__max_words=words), random_store(3)
  lengths = [3, 9, 10, 64, 64, 200, 512]
  batch, rows = corrupted(config, store, lengths), placed(lengths)
  for e in range(len(lengths)):
    ours = batch['target_pos_BP'][e][batch['weight_BP'][e] > 0].tolist()
    assert ours == sequential(config, store, rows, e)


def entity_spans(units, real):
  """(first, last) columns of the entities of a row whose tokens have these units."""
  starts = [at for at in range(1, real - 1) if units[at] == 2]
  ends = [next((at for at in range(b + 1, real - 1) if units[at]), real - 1) for b in starts]
  return [(b, e - 1) for b, e in zip(starts, ends, strict=True)]


@pytest.mark.parametrize('probability', [0.0, 0.5])
@mutation('uniform(bits_JS(_COIN)) < options.entity_prob', 'uniform(bits_JS(_COIN)) < 1.0')
def test_entities_are_masked_whole_and_as_often_as_asked(probability):
  """With a budget of one token the first draw decides: it begins an entity, or a random word."""
  config = spans(mask__max_words=1, mask__entity_prob=probability, mask__rate=0.01)
  store = with_units(random_store(3000))
  examples = examples_lib.examples_in_memory(store, config, 48, 1)
  batch = examples.batch(np.arange(3000), shuffle=False)
  starts = examples.column['start']
  inside = outside = expected = 0
  for row in range(3000):
    real = int((batch['example_BT'][row] > 0).sum())
    units = np.append(1, store.units[starts[row] : starts[row] + real - 2])
    entities = entity_spans(units, real)
    if not entities or real < 20:
      continue
    (at,) = batch['target_pos_BP'][row][batch['weight_BP'][row] > 0]
    is_start = at in {first for first, _ in entities}
    inside, outside = inside + is_start, outside + (not is_start)
    expected += probability + (1 - probability) * word_start_share(store, units, starts, row, real)
  total = inside + outside
  assert total > 1000 and abs(inside - expected) < 4 * np.sqrt(total / 4)


def word_start_share(store, units, starts, row, real):
  """Share of the tokens whose word begins with the first token of an entity."""
  begins = store.word_starts[store.tokens[starts[row] : starts[row] + real - 2]].copy()
  begins[0] = True
  lead = np.maximum.accumulate(np.where(begins, np.arange(real - 2), 0))
  return (units[1:][lead] == 2).mean()


@mutation('begin_e[pick_n], size_e[pick_n]', 'begin_e[pick_n], 1')
def test_a_large_budget_covers_whole_entities():
  config = spans(mask__max_words=1, mask__entity_prob=0.9, mask__rate=0.3)
  store = with_units(random_store(600))
  examples = examples_lib.examples_in_memory(store, config, 64, 1)
  batch = examples.batch(np.arange(300), shuffle=False)
  cut = whole = 0
  for row in range(300):
    real = int((batch['example_BT'][row] > 0).sum())
    start = examples.column['start'][row]
    units = np.append(1, store.units[start : start + real - 2])
    chosen = set(batch['target_pos_BP'][row][batch['weight_BP'][row] > 0].tolist())
    assert len(chosen) == np.ceil(0.3 * (real - 2))
    # One entity may be cut by the budget; a random word may take part of another.
    for first, last in entity_spans(units, real):
      hit = len(chosen & set(range(first, last + 1)))
      whole, cut = whole + (hit == last - first + 1), cut + (0 < hit < last - first + 1)
  assert whole > 5 * cut > 0


@mutation("texts.candidate_c[first_n] if options.rule == 'spans' else index_n", 'index_n')
def test_a_merged_span_is_decided_as_a_whole():
  batch, original_BT, _ = masked(spans(), rows=600, store=random_store(1500))
  kinds = np.zeros(3)
  for row in range(600):
    for first, last, slot in runs(batch, row):
      shown, original = (x[row, first : last + 1] for x in (batch['token_BT'], original_BT))
      decided = batch['masked_BP'][row, slot : slot + last - first + 1]
      assert decided.min() == decided.max()
      if decided[0]:
        assert (shown == MASK).all()
      if last - first < 3:  # longer ones: the corpus may draw the original nowhere or everywhere
        kinds[0 if decided[0] else 1 if (shown != original).any() else 2] += 1
  share, error = kinds / kinds.sum(), 3.5 * np.sqrt([0.16, 0.09, 0.09] / kinds.sum())
  assert (abs(share - [0.8, 0.1, 0.1]) < error).all()


@mutation('until_V = np.cumsum(store.counts)', 'until_V = np.cumsum(np.ones_like(store.counts))')
def test_random_ids_are_as_frequent_as_in_the_corpus():
  store = random_store(3)
  store.counts = np.zeros(1000, np.int64)
  store.counts[[7, 500, 999]] = [1, 2, 5]
  config = spans(mask__mask_share=0.0, mask__random_share=1.0)
  batch = corrupted(config, store, [512] * 200, capacity=512)
  shown_BP = np.take_along_axis(batch['token_BT'], batch['target_pos_BP'], 1)
  ids, count = np.unique(shown_BP[batch['weight_BP'] > 0], return_counts=True)
  assert ids.tolist() == [7, 500, 999]
  expected = np.array([1, 2, 5]) / 8
  assert (abs(count / count.sum() - expected) < 4 * np.sqrt(expected / count.sum())).all()


@pytest.mark.parametrize('most', [15, 3])
@pytest.mark.parametrize(
  'plan', [recipes.SPANBERT_PLAN, recipes.BERT_PLAN], ids=lambda p: p['name']
)
@mutation('paired_n = (first_n > start_n) &', 'paired_n = (first_n >= start_n) &')
def test_pairs_are_the_neighbours_of_their_span(most, plan):
  config = spans(plan, mask__max_pair_targets=most, mask__rate=0.3)
  batch, original_BT, _ = masked(config, rows=200)
  special = (SPECIAL['cls'], SPECIAL['sep'])
  edges = inner = cut = 0
  for row in range(200):
    for first, last, slot in runs(batch, row):
      inside = not np.isin(original_BT[row, [first - 1, last + 1]], special).any()
      edges, inner = edges + (not inside), inner + inside
      for offset in range(last - first + 1):
        used = inside and offset < most
        cut += inside and not used
        expected = (first - 1, last + 1, offset) if used else (0, 0, 0)
        at = (row, slot + offset)
        assert batch['pair_weight_BP'][at] == used
        assert (batch['left_BP'][at], batch['right_BP'][at], batch['offset_BP'][at]) == expected
  assert edges > 5 and inner > 50 and (cut > 5 or most > 3)


def test_texts_of_a_pair_have_their_own_budgets():
  batch, original_BT, _ = masked(spans(recipes.BERT_PLAN, mask__max_targets=30), rows=50)
  for row in range(50):
    sep = np.flatnonzero(original_BT[row] == SPECIAL['sep'])
    at = batch['target_pos_BP'][row][batch['weight_BP'][row] > 0]
    texts = (1, sep[0]), (sep[0] + 1, sep[1])
    for first, stop in texts:
      asked = int(np.ceil(0.15 * (stop - first)))
      assert ((at >= first) & (at < stop)).sum() == asked
