"""ERNIE 1.0's pairs: negatives from a buffer, and halves."""

import collections

import numpy as np
from mutation import mutation
from toy_store import ernie, spec_of

from bertjax.examples.plans import ernie_pairs


def columns_of(store, window, seed=0, length=64, **changes):
  _, spec = spec_of(ernie(plan__dupe_factor=1, **changes), length, seed)
  pieces = list(ernie_pairs.build(store, spec, window))
  column = {k: np.concatenate([c[k] for c, _ in pieces]) for k in pieces[0][0]}
  count = collections.Counter()
  for _, counts in pieces:
    count.update(counts)
  return column, count


@mutation('(next_n % BUFFER == 0) | (next_n == len(order_n))', 'next_n == len(order_n)')
@mutation("positive['a_length'][item_n] <= room_n", "positive['b_length'][item_n] > room_n")
@mutation("swapped_n = column['swapped'] > 0", "swapped_n = column['swapped'] > 1")
def test_negatives_come_from_the_buffer(ernie_store, monkeypatch):
  monkeypatch.setattr(ernie_pairs, 'BUFFER', 100)
  column, count = columns_of(ernie_store, 1 << 20)
  again, _ = columns_of(ernie_store, 300)
  assert all((column[k] == again[k]).all() for k in column)
  label = column['next']
  assert count['positives'] == (label == 1).sum() > 500
  assert count['negatives'] == (label == 0).sum()
  assert count['positives'] == count['negatives'] + count['long_negatives']
  assert column['length'].max() <= 64 and count['long_negatives'] < 0.2 * count['positives']
  document = lambda start: np.searchsorted(
    ernie_store.sentences[ernie_store.documents], start, 'right'
  )
  a, b = document(column['a_start']), document(column['b_start'])
  positive = label == 1
  end = column['a_start'] + column['a_length']
  assert (a == b)[positive].all() and (end <= column['b_start'])[positive].all()
  assert (a == b)[~positive].mean() < 0.05
  # Within a buffer each positive gives one A and one B, and label 1 is spread evenly.
  segments = set(zip(column['a_start'][positive], column['b_start'][positive], strict=True))
  firsts, seconds = ({s[k] for s in segments} for k in (0, 1))
  assert set(column['a_start'][~positive]) | set(column['b_start'][~positive]) <= firsts | seconds
  halves = label[: len(label) // 200 * 200].reshape(-1, 100).mean(1)
  assert 0.3 < halves.min() and halves.max() < 0.7
  # The first segment wherever it fits.
  fits = np.isin(column['a_start'][~positive], list(seconds - firsts))
  a_first = {
    s: n for s, n in zip(column['a_start'][positive], column['a_length'][positive], strict=True)
  }
  of_second = dict((b, a) for a, b in segments)
  for start in column['a_start'][~positive][fits]:
    assert a_first[of_second[start]] > 61 // 2


@mutation("a_start=positive['a_start'] + dropped_n, ", '')
def test_halves_keep_what_is_next_to_the_border(ernie_store):
  whole, _ = columns_of(ernie_store, 1 << 20)
  column, count = columns_of(ernie_store, 1 << 20, plan__halves=True)
  a, b = column['a_length'], column['length'] - 3 - column['a_length']
  assert max(a.max(), b.max()) == 61 // 2 and min(a.min(), b.min()) >= 1
  assert count['long_negatives'] == 0

  def positives(column):
    c = {k: x[column['next'] == 1] for k, x in column.items()}
    a_end, b_end = c['a_start'] + c['a_length'], c['b_start'] + c['length'] - 3 - c['a_length']
    return {b: (a, end, b_end) for a, end, b, b_end in
            zip(c['a_start'], a_end, c['b_start'], b_end, strict=True)}  # fmt: skip

  before, after, cut = positives(whole), positives(column), 0
  assert before.keys() == after.keys()
  for start, (a, a_end, b_end) in before.items():
    kept = max(a, a_end - 30), a_end, min(b_end, start + 30)
    assert after[start] == kept
    cut += kept[0] - a + b_end - kept[2]
  assert count['cut_tokens'] == cut > 0
