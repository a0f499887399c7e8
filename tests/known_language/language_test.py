"""The text of a known language: words follow each other as it says, in all its files alike."""

import json

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


def test_the_files_say_the_same_under_each_name(tmp_path):
  known_language.write(tmp_path, known_language.make(), documents=30, held_out=5)
  read = lambda name: (tmp_path / name).read_text().splitlines()
  documents = '\n'.join(read('documents.txt')).strip().split('\n\n')
  assert len(documents) == 30 and all(len(d.split('\n')) == 2 for d in documents)
  assert len((tmp_path / 'heldout' / 'stream.txt').read_text().split()) == 5 * 16
  pairs = zip(read('both.en.txt'), read('both.fr.txt'), strict=True)
  assert all(en.replace('en', 'fr') == fr for en, fr in pairs)
  for line in read('dialogues.jsonl'):
    dialogue = json.loads(line)
    for turn, role in zip(dialogue['text'].split('\n'), dialogue['role'], strict=True):
      assert all(word.startswith(('asks', 'says')[role]) for word in turn.split())
  words = set((tmp_path / 'languages' / 'vocab.txt').read_text().split())
  assert {word for line in read('en.txt') + read('fr.txt') for word in line.split()} <= words
