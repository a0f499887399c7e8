"""What all corruptions share: rates and shares, whole words, slots of a row, budgets."""

import numpy as np
import pytest
from masking import MASKED_LM, at_targets, corrupted, masked
from mutation import mutation
from toy_store import (
  MASK,
  SPECIAL,
  distilbert,
  electra,
  ernie,
  ngrams,
  random_store,
  recipe,
  spans,
  with_units,
  xlm,
)  # fmt: skip

from bertjax.examples import targets

CLS, SEP = SPECIAL['cls'], SPECIAL['sep']

ROWS = MASKED_LM | dict(xlm=xlm(), distilbert=distilbert())


@pytest.mark.parametrize('name', ROWS)
@mutation('masked_n = u_n < mask.mask_share', 'masked_n = u_n < mask.mask_share + 0.1')
def test_rate_and_shares(name):
  batch, _, store = masked(ROWS[name], rows=1500, store=random_store(2500))
  used_BP = batch['weight_BP'] > 0
  assert 0.13 < used_BP.sum() / (batch['example_BT'] > 0).sum() < 0.16
  used_BP &= ~np.isin(batch['target_BP'], [CLS, SEP])
  count = used_BP.sum()
  batch = batch | dict(weight_BP=used_BP)
  target, shown = batch['target_BP'][used_BP], at_targets(batch, batch['token_BT'])
  vocabulary = store.vocabulary_size
  is_mask = batch['masked_BP'][used_BP].mean()
  # A random id is the original one, or [MASK], once in a vocabulary.
  changed = ((shown != target) & (shown != MASK)).mean() * vocabulary / (vocabulary - 2)
  kept = 1 - is_mask - changed
  for share, p in ((is_mask, 0.8), (changed, 0.1), (kept, 0.1)):
    # Words are decided as a whole by RoBERTa: about 1.4 tokens a word widen the error.
    assert abs(share - p) < 3 * np.sqrt(1.5 * p * (1 - p) / count)


WORDS = {name: MASKED_LM[name] for name in ('bert-words', 'roberta-words')} | dict(ngrams=ngrams())


@pytest.mark.parametrize('name', WORDS)
@mutation('np.flatnonzero(~is_special(rows.token_n, store))', 'np.arange(len(rows.token_n))')
def test_words_are_masked_whole_and_never_more_than_asked_for(name):
  config, full = WORDS[name], 0
  batch, original_BT, store = masked(config)
  for row in range(100):
    real = int((batch['example_BT'][row] > 0).sum())
    tokens = original_BT[row, :real]
    candidates = np.arange(real)
    if name != 'roberta-words':
      candidates = candidates[~np.isin(tokens, [CLS, SEP])]
    starts = store.word_starts[tokens[candidates]].copy()
    starts[0] = True
    chosen = set(batch['target_pos_BP'][row][batch['weight_BP'][row] > 0].tolist())
    for word in np.split(candidates, np.flatnonzero(starts)[1:]):
      assert chosen >= set(word) or not chosen & set(word)
    asked = max(1, round(0.15 * real))
    assert len(chosen) <= asked or name == 'roberta-words'
    full += len(chosen) == asked
  assert full > 95 or name != 'ngrams'


@pytest.mark.parametrize(
  'config', [electra(), spans(mask__rule='tokens'), recipe()], ids=['electra', 'spans', 'bert']
)
def test_every_candidate_is_chosen_equally_often(config):
  batch = corrupted(config, random_store(3), [64] * 6000, capacity=64)
  hit_T = np.bincount(batch['target_pos_BP'][batch['weight_BP'] > 0], minlength=64)
  assert hit_T[0] == hit_T[63] == 0
  expected = hit_T.sum() / 62
  assert ((hit_T[1:63] - expected) ** 2 / expected).sum() < 61 + 5 * np.sqrt(2 * 61)


@pytest.mark.parametrize('make', [xlm, distilbert, ernie])
@mutation('count(example_n, 1, examples) - count(example_n[kept_n], 1', 'count(example_n, 0')
def test_what_has_no_slot_is_dropped_by_lot_and_counted(make):
  store = with_units(random_store(300))
  batch, wide = (masked(make(mask__max_targets=most), 64, store=store)[0] for most in (5, 0))
  used_B = lambda each: (each['weight_BP'] > 0).sum(1)
  assert not wide['dropped_B'].any() and batch['dropped_B'].sum() > 50
  np.testing.assert_array_equal(used_B(batch) + batch['dropped_B'], used_B(wide))
  place = lambda each: each['target_pos_BP'][batch['dropped_B'] > 0][
    each['weight_BP'][batch['dropped_B'] > 0] > 0
  ]
  assert abs(place(batch).mean() - place(wide).mean()) < 4 * place(batch).std() / np.sqrt(
    len(place(batch))
  )  # early ones are not preferred


def sequential_words(order, sizes, limit):
  """create_pretraining_data.py: groups in shuffled order, one that would overflow is skipped."""
  taken = []
  for group in order:
    if sum(sizes[g] for g in taken) + sizes[group] <= limit:
      taken.append(group)
  return taken


def test_words_are_taken_as_the_sequential_algorithm_takes_them():
  draw = np.random.default_rng(0)
  groups, examples = draw.integers(1, 40, 30), 30
  example_n = np.repeat(np.arange(examples), groups)
  size_n = draw.integers(1, 6, len(example_n))
  room_E = draw.integers(0, 30, examples)
  ours = sorted(targets.fit(example_n, size_n, room_E).tolist())
  theirs = []
  for e in range(examples):
    at = np.flatnonzero(example_n == e).tolist()
    theirs += sequential_words(at, size_n, room_E[e])
  assert ours == sorted(theirs)
