"""Texts and pairs as rows: against the tokenizers of transformers, and the cut against its loop."""

import numpy as np
import published
import pytest
import tokenizers
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


def vocabulary_of_words(words, folder):
  """A vocabulary of whole words, of which the first is what is unknown."""
  model = tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, words[0])
  tokenizer = tokenizers.Tokenizer(model)
  tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
  tokenizer.save(str(folder / 'tokenizer.json'))
  return load_vocabulary(folder)


@pytest.mark.parametrize('single', [True, False], ids=['single', 'pair'])
@mutation(
  'np.repeat(np.arange(2, dtype=np.int32)',
  'np.repeat(np.zeros(2, np.int32)',
  file='bertjax/examples/labelled/common/texts.py',
  case='pair',
)
def test_rows_are_those_of_berts_tokenizer(shared, single):
  vocabulary = published.vocabulary(shared, 'bert-base-uncased')
  theirs = transformers.BertTokenizerFast(str(vocabulary.files[0]))
  # Theirs cuts in another order, and takes a pair with nothing for one text.
  short = [pair for pair in SAID if len(pair[0].split()) < 20 and pair[1]]
  for pair in short:
    pair = pair[:1] if single else pair
    (row,) = texts.rows([[text] for text in pair], vocabulary, 64, 1)
    want = theirs(*pair)
    np.testing.assert_array_equal(row.id_n, want['input_ids'])
    np.testing.assert_array_equal(row.type_n, want['token_type_ids'])
    assert row.cut == 0


@mutation('row.second or width : width] = 1', 'width : width] = 1')
def test_a_used_pair_has_the_segments_of_a_trained_one(shared):
  vocabulary = published.vocabulary(shared, 'bert-base-uncased')
  frame = sentences.bert_frame(vocabulary.special)
  for pair in ([['The cat'], ['sat down.']], [['The cat']]):
    (row,) = texts.rows(pair, vocabulary, 64, 1)
    second = int(np.argmax(row.type_n)) if row.type_n.any() else 0
    batch = sentences.as_batch([sentences.Row(row.id_n, second=second)], 1, 16, 1, frame)
    np.testing.assert_array_equal(batch['type_BT'][0, : len(row.type_n)], row.type_n)
    assert not batch['type_BT'][0, len(row.type_n) :].any()


@mutation("'sep' if vocabulary.special.get('last') is None else 'last'", "'sep'")
@mutation("special.get('last', special['sep'])", "special['sep']", file='bertjax/text/sentences.py')
def test_rows_with_gpts_three_tokens_are_those_of_the_original(golden, tmp_path):
  """_start_ a _delimiter_ b _classify_, whose ids follow the words."""
  theirs, sizes = golden('gpt1_original')
  words = [*(f'w{i}' for i in range(sizes['n_vocab'])), '_start_', '_delimiter_', '_classify_']
  vocabulary = vocabulary_of_words(words, tmp_path)
  start, delimiter, classify = texts.ends(vocabulary)
  assert [start, delimiter, classify] == list(range(sizes['n_vocab'], len(words)))
  for id_T, real_T in zip(
    theirs['gpt1/x'][..., 0].reshape(-1, sizes['n_ctx']),
    theirs['gpt1/m'].reshape(-1, sizes['n_ctx']),
    strict=True,
  ):
    wanted = id_T[real_T > 0].tolist()
    said = ' '.join(words[i] for i in wanted[1:-1]).split(' _delimiter_ ')
    (row,) = texts.rows([[text] for text in said], vocabulary, len(wanted), 1)
    assert row.id_n.tolist() == wanted and row.cut == 0
  frame = sentences.bert_frame(vocabulary.special)
  assert (frame.before, frame.after) == ((start,), (classify,))
  (row,) = texts.word_rows([['w1', 'w2']], vocabulary, 8)
  assert row.id_n.tolist() == [start, 1, 2, classify]


@pytest.mark.parametrize(
  'marks, wanted',
  [(['<eos>'], '<eos> a b <eos> c <eos>'), (['<S>', '</S>'], '<S> a b </S> c </S>')],
  ids=['words', 'marked words'],
)
@mutation(
  "begin = 'eos' if vocabulary.special['cls'] is None else 'cls'",
  "begin = 'eos'",
  case='marked words',
)
def test_rows_of_words_begin_with_their_mark_or_with_an_end(marks, wanted, tmp_path):
  pieces = ['<unk>', *marks, 'a', 'b', 'c']
  (row,) = texts.rows([['a b'], ['c']], vocabulary_of_words(pieces, tmp_path), 8, 1)
  assert ' '.join(pieces[i] for i in row.id_n) == wanted
