"""Texts and pairs as rows: against the tokenizers of transformers, and the cut against its loop."""

import numpy as np
import pytest
from mutation import mutation
from slow_imports import transformers

from bertjax.examples.labelled.common import texts
from bertjax.text import sentences
from bertjax.vocab.vocabulary import load_vocabulary

SAID = [
  ('The cat sat.', 'It was on the mat, was it not?'),
  ('A ' * 40, 'B c d ' * 9),
  ('', 'alone'),
  ('one', ''),
  ('word ' * 30, 'word ' * 30),
]


@mutation('size if size == small else room - small', 'room - size if size == small else size')
def test_the_longer_text_loses_token_by_token():
  for first in range(13):
    for second in range(13):
      for room in range(1, 20):
        sizes = [first, second]
        while sum(sizes) > room:
          sizes[0 if sizes[0] > sizes[1] else 1] -= 1
        assert texts.fitting([first, second], room) == sizes, (first, second, room)


@pytest.mark.parametrize('single', [True, False], ids=['single', 'pair'])
@mutation(
  'np.repeat(np.arange(2, dtype=np.int32)',
  'np.repeat(np.zeros(2, np.int32)',
  file='bertjax/examples/labelled/common/texts.py',
  case='pair',
)
def test_rows_are_those_of_berts_tokenizer(shared, single):
  vocab = shared / 'tokenizers' / 'bert-base-uncased' / 'vocab.txt'
  theirs = transformers.BertTokenizerFast(str(vocab))
  # Theirs cuts in another order, and takes a pair with nothing for one text.
  short = [pair for pair in SAID if len(pair[0].split()) < 20 and pair[1]]
  for pair in short:
    pair = pair[:1] if single else pair
    (row,) = texts.rows([[text] for text in pair], load_vocabulary(vocab), 64, 1)
    want = theirs(*pair)
    np.testing.assert_array_equal(row.id_n, want['input_ids'])
    np.testing.assert_array_equal(row.type_n, want['token_type_ids'])
    assert row.cut == 0


@mutation('row.second or width : width] = 1', 'width : width] = 1')
def test_a_used_pair_has_the_segments_of_a_trained_one(shared):
  vocabulary = load_vocabulary(shared / 'tokenizers' / 'bert-base-uncased' / 'vocab.txt')
  frame = sentences.bert_frame(vocabulary.special)
  for pair in ([['The cat'], ['sat down.']], [['The cat']]):
    (row,) = texts.rows(pair, vocabulary, 64, 1)
    second = int(np.argmax(row.type_n)) if row.type_n.any() else 0
    batch = sentences.as_batch([sentences.Row(row.id_n, second=second)], 1, 16, 1, frame)
    np.testing.assert_array_equal(batch['type_BT'][0, : len(row.type_n)], row.type_n)
    assert not batch['type_BT'][0, len(row.type_n) :].any()
