"""Tags of words as labels of tokens."""

import numpy as np
import pytest
from letters import Letters
from mutation import mutation

from bertjax.errors import UserError
from bertjax.examples.labelled.common.tagged import Sentence
from bertjax.examples.labelled.tags import TASK, Options

OPTIONS = Options('tokens', 'tags', ' ', (1, -1), 'iob2', ('PER', 'LOC'))
TAGS = ('O', 'B-PER', 'I-PER', 'B-LOC', 'I-LOC')


LETTERS = Letters(dict(cls=1, sep=2, pad=0, unk=3), stripped=True)


def encode(words, tags, length=16, **changes):
  options = Options(**{**vars(OPTIONS), **changes})
  sentence = Sentence('f.conll', words.split(' '), tags.split(), list(range(7, 99)))
  return TASK.encode([sentence], options, LETTERS, length)


@mutation('[row.first_n], weight_T[row.first_n] = true_n', '[row.first_n], weight_T[1:-1] = true_n')
@mutation('first_n = 1 + np.cumsum(size_n) - size_n', 'first_n = np.cumsum(size_n)')
def test_the_first_piece_of_a_word_carries_its_tag():
  found = encode('Ada was in', 'B-PER O B-LOC')
  assert found.id_n[0].tolist() == [1, *b'Adawasin', 2]
  assert found.token_label['tag_weight'][0].tolist() == [0, 1, 0, 0, 1, 0, 0, 1, 0, 0]
  assert found.token_label['tag'][0].tolist() == [0, 1, 0, 0, 0, 0, 0, 3, 0, 0]
  assert found.token_label['tag_weight'][0].dtype == np.float32
  assert [TAGS[i] for i in found.truth[0]] == ['B-PER', 'O', 'B-LOC'] and found.cut == 0
  assert TASK.classes(OPTIONS) == dict(tag=5)


@mutation('piece_n if len(piece_n) else unk_n', 'piece_n')
def test_a_word_without_pieces_is_unknown_and_has_its_tag():
  found = encode('é a', 'B-PER I-PER')
  assert found.id_n[0].tolist() == [1, 3, *b'a', 2]
  assert found.token_label['tag'][0].tolist() == [0, 1, 2, 0]


@mutation("[f' {word}' for word in known]", 'known')
def test_a_word_is_encoded_as_it_stands_in_a_text():
  class Spaced(Letters):
    def encode_unended(self, texts):
      assert all(text == f' {text.strip()}' for text in texts)
      return super().encode_unended(texts)

  TASK.encode([Sentence('f', ['a', 'b'], ['O', 'O'])], OPTIONS, Spaced(LETTERS.special, True), 9)


@mutation('first_n[first_n < length - 1]', 'first_n[first_n < length]')
def test_what_is_cut_is_counted_and_its_truth_is_kept():
  found = encode('abc de f', 'B-PER I-PER O', length=6)
  assert found.id_n[0].tolist() == [1, *b'abcd', 2] and found.cut == 1
  assert found.token_label['tag_weight'][0].tolist() == [0, 1, 0, 0, 1, 0]
  assert len(found.truth[0]) == 3
  found = encode('abcd ef', 'B-PER I-PER', length=6)
  assert found.token_label['tag_weight'][0].tolist() == [0, 1, 0, 0, 0, 0] and found.cut == 1


@pytest.mark.parametrize(
  ('tags', 'changes', 'said'),
  [
    ('O B-ORG', {}, "line 8: expected one of the tags O, B-PER, .* got 'B-ORG': mend"),
    ('O I-PER', {}, r'line 8: I-PER goes on .*expected IOB2.*here B-PER.*Convert'),
    ('B-LOC I-PER', {}, 'line 8: I-PER goes on'),
    ('X Y', dict(scheme='plain', classes=('X', 'Z')), "line 8: .*of the tags X, Z, got 'Y'"),
    ('O O', dict(length=2), 'config.length=2 leaves no room'),
  ],
)
@mutation('[2:] != tag[2:]', ' == OUTSIDE', case='B-LOC I-PER-changes2-line 8: I-PER goes on')
def test_what_is_wrong_is_named_by_its_line(tags, changes, said):
  with pytest.raises(UserError, match=said):
    encode('a b', tags, **changes)


@pytest.mark.parametrize(
  ('changes', 'said'),
  [
    (dict(classes=()), 'expected 1 or more'),
    (dict(classes=('PER', 'PER')), 'all different'),
    (dict(classes=('O', 'B-PER')), 'expected types of entities.*got O, B-PER'),
    (dict(scheme='plain', classes=('N',)), 'expected 2 or more'),
    (dict(separator=''), 'expected a separator'),
    (dict(columns=(0, 1)), 'columns from 1'),
  ],
)
def test_what_cannot_be_learned_is_refused(changes, said):
  with pytest.raises(UserError, match=said):
    TASK.check(Options(**{**vars(OPTIONS), **changes}))
