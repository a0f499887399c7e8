"""Scores of tags on cases that were counted by hand, or by seqeval 1.2.2."""

import math

import numpy as np
import pytest
from mutation import mutation

from bertjax.evals import tagging
from bertjax.evals.tagging import Tagged

# Of one sentence each: true tags, predicted ones, and seqeval's precision, recall and F1.
CASES = {
  'right': ('B-A I-A O', 'B-A I-A O', (1, 1, 1)),
  'type': ('B-A I-A O', 'B-B I-B O', (0, 0, 0)),
  'shorter': ('B-A I-A O B-B', 'B-A O O B-B', (1 / 2, 1 / 2, 1 / 2)),
  'side by side': ('B-A B-A O', 'B-A I-A O', (0, 0, 0)),
  'begun by I': ('O B-A I-A', 'O I-A I-A', (1, 1, 1)),
  'changed inside': ('B-A I-A', 'B-A I-B', (0, 0, 0)),
  'none there': ('O O', 'O B-A', (0, 0, 0)),
  'none found': ('O B-A', 'O O', (0, 0, 0)),
  'nothing': ('O O', 'O O', (0, 0, 0)),
  'many': ('B-A O B-x-y I-x-y B-B', 'B-A O B-x-y I-x-y O', (1, 2 / 3, 4 / 5)),
}


@pytest.mark.parametrize('case', CASES)
@mutation('(number, *each) for number', '(number, *each[:2]) for number', case='shorter')
@mutation('inside, start = kind', "inside, start = kind if mark == 'B' else ''", case='begun by I')
def test_entities_are_scored_as_seqeval_scores_them(case):
  true, found, want = CASES[case]
  scores = tagging.entity_scores([true.split()], [found.split()])
  assert tuple(scores.values()) == pytest.approx(want)


@mutation('(number, *each) for number', 'each for number')
def test_entities_are_counted_over_sentences_and_each_in_its_own():
  scores = tagging.entity_scores([['B-A', 'O'], ['O', 'O']], [['O', 'O'], ['B-A', 'O']])
  assert scores == dict(precision=0, recall=0, f1=0)


@mutation('for tag, found in pairs) / len(pairs)', 'for tag, found in pairs) / len(nll_n)')
def test_scores_of_words_count_those_without_room():
  sentences = [
    Tagged(['O', 'B-A', 'O'], ['O', 'O', 'O'], np.array([0.1, 0.3])),  # the last was cut
    Tagged(['B-A'], ['B-A'], np.array([0.2])),
  ]
  found = tagging.word_scores(sentences)
  assert found == pytest.approx(dict(loss=0.2, accuracy=3 / 4, majority=2 / 4, cut=1))
  assert found.keys() == tagging.names('plain')
  assert tagging.names('iob2') - tagging.names('plain') == {'precision', 'recall', 'f1'}
  assert all(math.isfinite(value) for value in found.values())
