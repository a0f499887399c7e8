"""Translation pairs: layout, positions, languages, what is left out."""

import numpy as np
import original_goldens as goldens
import pytest
from mutation import mutation
from toy_store import random_store, spoken, store_of, xlm

from bertjax.examples import examples as examples_lib
from bertjax.examples import recipes

SEP = 3


def pairs_of(store):
  """(source tokens, target tokens, source language, target language) of each pair, in order."""
  language_S, s = store.columns['language'], store.sentences
  tokens = lambda i: store.tokens[s[i] : s[i + 1]].tolist()
  found = []
  for first, last in zip(store.documents[:-1], store.documents[1:], strict=True):
    if last - first == 2 and language_S[first] != language_S[first + 1]:
      both = int(language_S[first]), int(language_S[first + 1])
      found.append((tokens(first), tokens(first + 1), *both))
  return found


def batch_of(store, **changes):
  plan = recipes.TRANSLATION_PLAN | changes
  config = xlm(plan, mask__mask_share=0.0, mask__random_share=0.0)
  examples = examples_lib.examples_in_memory(store, config, 64, 0)
  return examples.batch(np.arange(examples.rows), False), examples


ONE_SEPARATOR = dict(orders='given', reset_positions=False)


@pytest.mark.parametrize(
  'changes', [{}, ONE_SEPARATOR, ONE_SEPARATOR | dict(lead='cls')], ids=['xlm', 'one', 'cls']
)
@mutation('(np.zeros_like(a_E), (a_E + 2) * two_E)', '(np.zeros_like(a_E), 0 * a_E)')
@mutation('(a_E + 1 + two_E, b_E + 2)', '(a_E + 2, b_E + 1 + two_E)')
@mutation('both_n[:, ::-1].ravel()', 'both_n[:, [1, 1]].ravel()', case='xlm')
@mutation("orders='both'", "orders='given'", file='bertjax/examples/recipes.py', case='xlm')
def test_the_layout_of_a_pair(changes):
  """XLM's recipe has both orders of a pair, as its commands list en-ar and ar-en."""
  store = spoken(random_store(60, words=14), pairs=30)
  batch, examples = batch_of(store, **changes)
  reset, lead = changes.get('reset_positions', True), changes.get('lead', 'sep')
  every = pairs_of(store)
  fits = lambda pair: len(pair[0]) + len(pair[1]) + (4 if reset else 3) <= 64
  expected = [pair for pair in every if fits(pair)]
  assert examples.stats['long_pairs'] == len(every) - len(expected) > 0
  if 'orders' not in changes:
    expected = [row for a, b, x, y in expected for row in ((a, b, x, y), (b, a, y, x))]
  assert examples.rows == len(expected) > 20
  for row, (source, target, source_language, target_language) in enumerate(expected):
    a, b = len(source), len(target)
    middle = [SEP, SEP] if reset else [SEP]
    tokens = [store.special[lead], *source, *middle, *target, SEP]
    first = a + 2 if reset else a + 1  # the target's first </s>
    positions = [*range(first), *range(b + 2)] if reset else range(len(tokens))
    pad = lambda values: np.pad(np.array(values), (0, 64 - len(values)))
    np.testing.assert_array_equal(batch['token_BT'][row], pad(tokens))
    np.testing.assert_array_equal(batch['position_BT'][row], pad(list(positions)))
    np.testing.assert_array_equal(
      batch['language_BT'][row], pad([source_language] * first + [target_language] * (b + 2))
    )
    np.testing.assert_array_equal(batch['example_BT'][row], pad([1] * len(tokens)))
    assert examples.column['group'][row] == 256 * source_language + target_language


@pytest.mark.parametrize('kind', ['reset', 'no_reset'])
def test_the_rows_of_the_original(kind, shared):
  """utils.py:concat_batches: ids, positions and languages."""
  file = goldens.load(shared, 'xlm_batches')
  parts = lambda side: np.split(
    file.found[f'tlm/sentences_{side}'], np.cumsum(file.found[f'tlm/sentence_lengths_{side}'])[:-1]
  )
  special = dict(pad=file.given['pad_index'], unk=3, cls=0, sep=file.given['eos_index'], mask=5)
  store = store_of(list(zip(parts(1), parts(2), strict=True)), special)
  store.columns = dict(language=np.tile(np.uint8([0, 1]), 24))
  store.meta['languages'] = ['de', 'en']
  batch, examples = batch_of(store, orders='given', reset_positions=kind == 'reset')
  get = lambda name: file.found[f'tlm/{kind}/{name}'].T
  assert examples.rows == len(get('lengths')) == 24
  for row, length in enumerate(get('lengths')):
    assert np.sum(batch['example_BT'][row] > 0) == length
    for ours, theirs in (('token', 'x'), ('position', 'positions'), ('language', 'langs')):
      np.testing.assert_array_equal(batch[f'{ours}_BT'][row, :length], get(theirs)[row, :length])
