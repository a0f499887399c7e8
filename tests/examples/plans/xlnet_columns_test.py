"""XLNet's rows against the original's loops, run with the same draws."""

import numpy as np
import pytest
from mutation import mutation
from toy_store import XLNET_EOD, xlnet, xlnet_store

from bertjax import counter_rng
from bertjax.examples import examples as examples_lib
from bertjax.examples import loader

LENGTH, REUSE, SEED, LANES = 48, 20, 5, 4


def columns_of(store, config, epoch):
  """The columns as the original's lists, forwards and then backwards: (tokens, sentence ids)."""
  documents = len(store.documents) - 1
  key = counter_rng.fold(counter_rng.root(SEED, 'documents'), epoch)
  order = counter_rng.permute(np.repeat(key, documents), np.arange(documents), documents)
  assert sorted(order.tolist()) == list(range(documents))
  token, sentence = [], []
  for d in order:
    for s in range(store.documents[d], store.documents[d + 1]):
      ids = store.tokens[store.sentences[s] : store.sentences[s + 1]].tolist()
      token += ids
      sentence += [s] * len(ids)
    token.append(XLNET_EOD)
    sentence.append(s)
  both = config.plan.both_directions
  count = LANES // 2 if both else LANES
  size = len(token) // count
  found = [(token[c * size :][:size], sentence[c * size :][:size]) for c in range(count)]
  if both:
    found += [(t[::-1], s[::-1]) for t, s in found]
  return found


def split(token, sentence, begin, room, draw):
  """A, B and the label as data_utils.py:_split_a_and_b finds them, token by token."""
  size, end, cuts = len(token), begin + 1, []
  while end < size:
    if sentence[end] != sentence[end - 1]:
      if end - begin >= room:
        break
      cuts.append(end)
    end += 1
  coin = counter_rng.uniform(draw(0))[0]
  a_end = cuts[counter_rng.below(draw(1), len(cuts))[0]] if cuts else end
  if not cuts or coin < 0.5:
    label, want = 0, max(1, room - (a_end - begin))
    b_begin = counter_rng.below(draw(2), size - want)[0]
    b_end = b_begin + want
    while b_begin > 0 and sentence[b_begin - 1] == sentence[b_begin]:
      b_begin -= 1
    while b_end < size - 1 and sentence[b_end - 1] == sentence[b_end]:
      b_end += 1
  else:
    label, b_begin, b_end = 1, a_end, end
  while a_end - begin + b_end - b_begin > room:
    if a_end - begin > b_end - b_begin:
      a_end -= 1
    else:
      b_end -= 1
  return token[begin:a_end], token[b_begin:b_end], label


@pytest.mark.parametrize('both', [True, False])
@pytest.mark.parametrize('words', [3, 9, 60])
@mutation('  start_E = step_E * reuse', '  start_E = step_E * spec.length')
@mutation('truncated(a_E, b_E, room)[0]', 'truncated(b_E, a_E, room)[1]')
@mutation('    place_c = place_c - ~ahead_E[owner_c]', '    place_c = place_c - 0')
@mutation('  if epoch is not None:', '  if epoch is not None and epoch < 0:')
def test_equals_the_original(words, both):
  """Short sentences, which give many places to cut, and long ones, which give none."""
  config, store = xlnet(plan__both_directions=both), xlnet_store(words=words)
  examples = examples_lib.examples_in_memory(store, config, LENGTH, SEED, rows=LANES)
  sep, cls = store.special['sep'], store.special['cls']
  labels, seen = [], 0
  for epoch in range(2):
    columns = columns_of(store, config, epoch)
    steps = (len(columns[0][0]) - LENGTH) // REUSE + 1
    assert examples.rows == steps * LANES
    key = counter_rng.fold(counter_rng.root(SEED, 'xlnet_rows'), epoch)
    batch = examples.batch(epoch * examples.rows + np.arange(examples.rows), shuffle=True)
    for index in range(examples.rows):
      step, lane = divmod(index, LANES)
      token, sentence = columns[lane]
      draw = lambda site, index=index, key=key: counter_rng.fold(counter_rng.fold(key, index), site)
      begin = step * REUSE
      a, b, label = split(token, sentence, begin + REUSE, LENGTH - REUSE - 3, draw)
      row = token[begin : begin + REUSE] + a + [sep] + b + [sep, cls]
      assert batch['token_BT'][index].tolist() == row
      types = [0] * (REUSE + len(a) + 1) + [1] * (len(b) + 1) + [2]
      assert batch['type_BT'][index].tolist() == types
      assert batch['start_B'][index] == (step == 0)
      assert batch['direction_B'][index] == (-1 if both and lane >= LANES // 2 else 1)
      assert batch['follows_BG'][index, 0] == label
      labels.append(label)
      seen += XLNET_EOD in row
  assert seen and len(set(labels)) == 2
  assert (batch['example_BT'] == 1).all()


@mutation('(rows if examples.ordered else examples.rows)', 'examples.rows')
def test_evaluation_reads_the_first_rows_in_the_order_of_the_corpus():
  store = xlnet_store()
  examples = examples_lib.examples_in_memory(store, xlnet(), LENGTH, SEED, rows=LANES)
  batches = list(loader.eval_batches(examples, 4, limit=12))
  assert [b['start_B'][0] for b in batches] == [1, 0, 0]
  first = [b['token_BT'][0, :REUSE] for b in batches]
  text = np.concatenate(first)[: int(store.sentences[store.documents[1]])]
  np.testing.assert_array_equal(text, store.tokens[: len(text)])
