"""The text of a known language: words follow each other as it says."""

import numpy as np
from mutation import mutation

from tests.known_language import language as known_language


@mutation('[:, t - language.lag]', '[:, t - 1]', file='tests/known_language/language.py')
def test_words_follow_as_often_as_the_language_says():
  language = known_language.make()
  np.testing.assert_allclose(language.follow_WW.sum(0), 1)
  np.testing.assert_allclose(language.follow_WW.sum(1), 1)
  word_NT = known_language.sample(language, 4000, 20, np.random.default_rng(0))
  pairs_WW = np.zeros((24, 24))
  np.add.at(pairs_WW, (word_NT[:, :-2], word_NT[:, 2:]), 1)
  np.testing.assert_allclose(
    pairs_WW / pairs_WW.sum(1, keepdims=True), language.follow_WW, atol=0.02
  )
  beside_WW = np.zeros((24, 24))
  np.add.at(beside_WW, (word_NT[:, :-1], word_NT[:, 1:]), 1)
  np.testing.assert_allclose(beside_WW / beside_WW.sum(), 1 / 24**2, atol=5e-4)
