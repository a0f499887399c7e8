"""Rows of a language model in both directions against two texts that are written out."""

import numpy as np
import pytest
from mutation import mutation
from toy_store import random_store, recipe

from bertjax.examples import examples as examples_lib

LENGTH, LANES = 7, 3


def opened(store, seed: int = 5, **plan):
  data = recipe(dict(name='bilm_columns', **plan), dict(name='bilm'))
  return examples_lib.examples_in_memory(store, data, LENGTH, seed, rows=LANES)


def read(found, first: int = 0, shuffle: bool = True):
  """The batches of an epoch, and what they have side by side, [lanes, targets], without padding."""
  steps = found.rows // LANES
  batches = [
    found.batch(np.arange(step * LANES, (step + 1) * LANES), shuffle)
    for step in range(first * steps, (first + 1) * steps)
  ]
  side = lambda name: np.concatenate([b[name] for b in batches], 1)
  real = {letter: side(f'weight_B{letter}')[0] > 0 for letter in 'TU'}
  names = dict(token='token_BT', target='target_BT', out_token='out_token_BU', out='target_BU')
  return batches, {key: side(name)[:, real[name[-1]]] for key, name in names.items()}


def text_of(store, order, ends: bool) -> list[int]:
  found = []
  for number in order:
    found += store.tokens[store.sentences[number] : store.sentences[number + 1]].tolist()
    found += [store.special['sep']] * ends
  return found


@pytest.mark.parametrize('ends', ['', 'sep'])
@mutation('from_E = begin_E, spec.rows * size - begin_E - length_E', 'from_E = begin_E, begin_E')
@mutation('second_n, 2 * own_n - 1 - offset_n, offset_n', 'second_n, offset_n - own_n, offset_n')
@mutation('read_m = np.where(token_m == end, begin, token_m)', 'read_m = token_m')
def test_rows_are_the_text_from_its_front_and_from_its_end(ends):
  store = random_store(21, distinct=True)
  batches, found = read(opened(store, ends=ends), shuffle=False)
  text = text_of(store, range(len(store.sentences) - 1), bool(ends))
  size, (begin, end) = len(text) // LANES, (store.special['cls'], store.special['sep'])
  forwards_BT = np.array(text)[: size * LANES].reshape(LANES, size)
  backwards_BT = forwards_BT[::-1, ::-1]
  as_begin = lambda x: np.where(x == end, begin, x)
  np.testing.assert_array_equal(found['token'], as_begin(forwards_BT[:, :-1]))
  np.testing.assert_array_equal(found['target'], forwards_BT[:, 1:])
  np.testing.assert_array_equal(found['out_token'], backwards_BT[:, :-1])
  np.testing.assert_array_equal(found['out'], as_begin(backwards_BT[:, 1:]))
  assert batches[0]['start_B'].all() and not any(b['start_B'].any() for b in batches[1:])
  assert (size - 1) % LENGTH  # the last row is shorter
  for batch in batches:
    np.testing.assert_array_equal(batch['example_BT'], batch['weight_BT'])
    np.testing.assert_array_equal(batch['out_example_BU'], batch['weight_BU'])


@mutation("'backwards')", "'forwards')", file='bertjax/examples/plans/bilm_columns.py')
@mutation('s.order(epoch)', 's.order(epoch and 0)', file='bertjax/examples/plans/bilm_columns.py')
def test_both_texts_have_an_order_of_their_own_in_every_epoch():
  store = random_store(20, distinct=True)
  found = opened(store)
  texts = {}
  for epoch in range(2):
    _, got = read(found, epoch)
    texts[epoch, 'forwards'] = got['token'].ravel()
    texts[epoch, 'backwards'] = got['out_token'].ravel()[::-1]
  sentence = lambda token_n: np.searchsorted(store.sentences, token_n - 5, 'right') - 1
  orders = {key: tuple(dict.fromkeys(sentence(x).tolist())) for key, x in texts.items()}
  assert len(set(orders.values())) == 4
  for order in orders.values():  # what is left over at the end of all columns is dropped
    assert len(order) > len(store.sentences) - 5 and list(order) != sorted(order)
  _, fixed = read(opened(store, shuffle_sentences=False), 1)
  np.testing.assert_array_equal(fixed['token'], read(found, shuffle=False)[1]['token'])
