"""BART's damaged text beside fairseq's: lengths of spans, counts, and what is lost."""

import dataclasses

import numpy as np
import pytest
from masking import rows_of
from mutation import mutation
from toy_store import MASK, SPECIAL

from bertjax.examples.noise import bart_infilling
from bertjax.examples.noise.bart_infilling import Options

INFILLING = Options(0.3, 3.5, 0.0, 0.0, False, False)
PERMUTED = Options(0.0, 3.5, 1.0, 0.0, False, False)


def made(texts, options, **more):
  """What is read and what is written of each text, without its [CLS] and [SEP]."""
  rows, store = rows_of(texts, **more)
  found = bart_infilling.corrupt(rows, options, store)
  read, whole = found['T'], found['U']
  for stream, ids in ((read, read.token_m), (whole, whole.field['target'])):
    example_m = rows.example_n[stream.source_m]
    own = np.split(ids, np.searchsorted(example_m, np.arange(1, len(texts))))
    assert all((x[0], x[-1]) == (SPECIAL['cls'], SPECIAL['sep']) for x in own)
    yield [x[1:-1] for x in own]
  first_m = np.diff(example_m, prepend=-1) != 0
  before_m = np.where(first_m, SPECIAL['sep'], np.roll(whole.field['target'], 1))
  np.testing.assert_array_equal(whole.token_m, before_m)


@mutation('share < RAREST and count > mean', 'share < RAREST / 100')
def test_lengths_of_spans_are_those_of_fairseq(golden):
  theirs, _ = golden('bart_mass')
  np.testing.assert_allclose(bart_infilling.pmf(3.5), theirs['poisson_pmf'], atol=1e-7)
  assert len(bart_infilling.pmf(0.5)) > 1


@mutation('covered_n | (begun_n & ~start_n)', '(covered_n & ~start_n) | (begun_n & ~start_n)')
@mutation('left_l = budget_E[example_l] - before_l', 'left_l = budget_E[example_l]')
def test_as_much_is_hidden_as_in_fairseq(golden):
  original, _ = golden('bart_mass')
  texts = [np.arange(5, 405)] * 1000
  read, whole = made(texts, INFILLING)
  assert all(np.array_equal(a, b) for a, b in zip(whole, texts, strict=True))
  sizes = np.array([len(text) + 2 for text in read])
  masks = np.array([(text == MASK).sum() for text in read])
  for ours, theirs in ((sizes, original['stat/length_of_source']), (masks, original['stat/masks'])):
    error = np.hypot(ours.std() / 1000**0.5, theirs.std() / 3000**0.5)
    assert abs(ours.mean() - theirs.mean()) < 4 * error
    assert ours.std() == pytest.approx(theirs.std(), rel=0.08)


@mutation('index_n)) < options.random_share', 'index_n)) < 0.0')
def test_spans_are_whole_words_and_nothing_else_is_lost():
  starts = np.random.default_rng(0).random(1000) < 0.6
  texts = [np.arange(5 + first, 5 + first + n) for first in (0, 40) for n in (1, 2, 9, 60, 300)]
  options = dataclasses.replace(INFILLING, whole_words=True)
  read, _ = made(texts, options, word_starts=starts)
  for text, left in zip(texts, read, strict=True):
    kept = left[left != MASK]
    assert np.all(np.diff(kept) > 0) and set(kept) <= set(text) and len(left) <= len(text)
    gone = np.isin(text, kept, invert=True)
    first = gone & ~np.append(False, gone[:-1])
    behind = ~gone & np.append(False, gone[:-1])
    assert starts[text[first]].all() and starts[text[behind]].all()
    words = starts[text].sum()
    assert starts[text[gone]].sum() <= np.ceil(np.float32(0.3) * words)
    assert (left == MASK).sum() >= first.sum()  # every hole shows one
  odd, _ = made(texts, dataclasses.replace(options, random_share=1.0), word_starts=starts)
  assert not any((left == MASK).any() for left in odd)


@mutation('np.lexsort((drawn_s, example_s[moved_s]))', 'np.arange(len(moved_s))')
def test_sentences_change_places_every_order_equally_likely():
  text = np.arange(5, 5 + 3 * 7)
  read, _ = made([text] * 6000, PERMUTED)
  orders, count = np.unique(np.array(read), axis=0, return_counts=True)
  assert len(orders) == 6 and ((count - 1000) ** 2 / 1000).sum() < 20.5  # 5 degrees, 1 in 1000
  assert all(sorted(order[::7]) == [5, 12, 19] for order in orders)
  assert all((np.diff(order.reshape(3, 7)) == 1).all() for order in orders)
  half, _ = made([np.arange(5, 5 + 4 * 7)] * 500, dataclasses.replace(PERMUTED, permuted=0.5))
  moved = [(text.reshape(4, 7)[:, 0] != np.arange(5, 33, 7)).sum() for text in half]
  assert set(moved) == {0, 2}


def test_a_text_gets_no_longer_and_draws_nothing_from_its_neighbours():
  texts = [np.arange(5, 5 + n) for n in (1, 3, 17, 120)] * 40
  options = dataclasses.replace(INFILLING, rate=1.0, mean_span=0.4, permuted=1.0)
  read, _ = made(texts, options)
  assert all(len(left) <= len(text) for text, left in zip(texts, read, strict=True))
  few, _ = made(texts[:3], options)
  assert all(np.array_equal(a, b) for a, b in zip(few, read[:3], strict=True))
