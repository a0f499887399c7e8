"""ALBERT's n-grams: lengths, order of tries, counts, word starts."""

import numpy as np
import pytest
from masking import corrupted
from mutation import mutation
from toy_store import ngrams, random_store

from bertjax.examples import targets
from bertjax.examples.noise import albert_ngrams as rule
from bertjax.vocab.sentencepiece_model import word_starts


@mutation('return share_n', 'return share_n[::-1]', file='bertjax/examples/noise/albert_ngrams.py')
def test_lengths_have_the_probabilities_of_the_paper():
  np.testing.assert_allclose(rule.pmf(3), [0.5455, 0.2727, 0.1818], atol=5e-5)
  assert rule.pmf(3) @ [1, 2, 3] == pytest.approx(1.636, abs=5e-4)


def one_token_words(store):
  store.word_starts[:] = True
  return store


@mutation('taken_E = ~clash_E & (size_E', 'taken_E = (size_E')
@mutation('for _ in range(length_E.max() - 1):', 'for _ in range(0):')
def test_a_lone_ngram_has_the_drawn_length():
  """With a budget of three words and one try seen, the first n-gram is as long as it was drawn."""
  config = ngrams(mask__rate=3 / 40)
  batch = corrupted(config, one_token_words(random_store(3)), [40] * 20000, capacity=40)
  used_BP, pos_BP = batch['weight_BP'] > 0, batch['target_pos_BP']
  assert (used_BP.sum(1) == 3).all()
  whole = (pos_BP[:, 2] - pos_BP[:, 0] == 2).mean()
  p1, p2, p3 = rule.pmf(3)
  # Three in a row: drawn so, or 2 and 1 side by side (two places of 35 or so), or 1 and 1 and 1.
  assert p3 * 35 / 37 - 0.01 < whole < p3 + 0.12 * (p1 + p2)


def test_ngrams_are_taken_as_the_sequential_algorithm_takes_them():
  draw = np.random.default_rng(1)
  examples, longest = 40, 3
  words_E, room_E = draw.integers(1, 30, examples), draw.integers(0, 20, examples)
  example_n = np.repeat(np.arange(examples), words_E)
  size_n = draw.integers(1, 5, len(example_n))
  first_n = np.cumsum(size_n) - size_n
  length_n = draw.integers(1, longest + 1, len(example_n))
  order_n = np.argsort(example_n + draw.random(len(example_n)))
  ours = rule._cover(targets.Units(example_n, first_n, size_n), order_n, length_n, room_E)
  theirs = np.zeros(len(example_n), bool)
  for start in order_n:  # example by example
    e = example_n[start]
    of_e = np.flatnonzero(example_n == e)
    left = room_E[e] - size_n[of_e][theirs[of_e]].sum()
    if left <= 0:
      continue
    n = length_n[start]
    gram = [w for w in range(start, start + n) if w <= of_e[-1]]
    while len(gram) > 1 and size_n[gram].sum() > left:
      gram = gram[:-1]
    if size_n[gram].sum() <= left and not theirs[gram].any():
      theirs[gram] = True
  np.testing.assert_array_equal(ours, theirs)


def test_word_starts_of_a_sentencepiece_vocabulary():
  """is_start_piece_sp of google-research/albert, and _is_start_piece of zihangdai/xlnet."""
  starts = {'▁the': 1, 'ing': 0, '.': 1, 's.': 0, '7': 1, 'é': 1, '中': 1, "'": 1, '<unk>': 1}
  test = word_starts(list(starts))
  assert {piece: test(piece) for piece in starts} == starts
  test = word_starts([*starts, '<eop>'])
  assert {piece: test(piece) for piece in starts} == starts | {'7': 0, 'é': 0, '中': 0, "'": 0}
