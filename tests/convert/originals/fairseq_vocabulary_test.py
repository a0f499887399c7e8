"""dict.txt of fairseq becomes a vocabulary with the ids that the checkpoint was trained with."""

import json

import numpy as np
import pytest
from mutation import mutation

from bertjax.convert.originals import fairseq_vocabulary
from bertjax.data.vocab.vocabulary import load_vocabulary


def dictionary(path, symbols) -> None:
  (path / 'dict.txt').write_text(''.join(f'{s} {9 - i % 9}\n' for i, s in enumerate(symbols)))


def test_a_dictionary_of_letters(tmp_path):
  dictionary(tmp_path, 'ACDE')
  file, said = fairseq_vocabulary.write(tmp_path, 9, tmp_path)
  vocabulary = load_vocabulary(file)
  assert said == [] and vocabulary.size == 9
  assert vocabulary.special == dict(cls=0, sep=2, pad=1, mask=8, unk=3)
  assert [ids.tolist() for ids in vocabulary.encode_batch(['EAC', 'E A C', 'AX'])] == [
    [7, 4, 5], [7, 4, 5], [4, 3],
  ]  # fmt: skip


@mutation(
  'fairseq: the dictionary has the ids of GPT-2',
  'bertjax/convert/originals/fairseq_vocabulary.py',
  'index = {piece_of.get(symbol, symbol): i',
  'index = {symbol: i',
)
def test_a_dictionary_of_byte_level_bpe(shared, tmp_path):
  """The published dict.txt of RoBERTa has GPT-2's ids by falling frequency."""
  ours = json.loads((shared / 'tokenizers/roberta/vocab.json').read_text())
  gpt2 = json.loads((shared / 'tokenizers/gpt2/vocab.json').read_text())
  symbols = sorted(ours, key=ours.get)[4:-1]
  dictionary(tmp_path, [str(gpt2.get(symbol, symbol)) for symbol in symbols])
  none, said = fairseq_vocabulary.write(tmp_path, len(ours), tmp_path)
  assert none is None and 'encoder.json and vocab.bpe are not beside it' in said[0]
  (tmp_path / 'encoder.json').write_text(json.dumps(gpt2))
  merges = (shared / 'tokenizers/gpt2/merges.txt').read_bytes()
  (tmp_path / 'vocab.bpe').write_bytes(merges)
  file, said = fairseq_vocabulary.write(tmp_path, len(ours), tmp_path)
  text = ['Hello, world!  £5 — 北京 naïve 😀', 'and <mask> is text']
  mine, theirs = load_vocabulary(file), load_vocabulary(shared / 'tokenizers/roberta')
  assert said == [] and mine.size == theirs.size == len(ours) and mine.special == theirs.special
  for one, two in zip(mine.encode_batch(text), theirs.encode_batch(text), strict=True):
    np.testing.assert_array_equal(one, two)


@mutation(
  'fairseq: a blank at the end is a piece',
  'bertjax/convert/tokenizer/sentencepiece_json.py',
  r"normalizers.Replace(Regex(rf'\A +|[ {SPACE}]+\z'), '')",
  r"normalizers.Replace(Regex(rf'\A +'), '')",
)
def test_a_dictionary_of_sentencepiece(shared, tmp_path):
  """As XLM-R's: the pieces of a unigram model but its three control pieces, one id further."""
  import sentencepiece

  model = shared / 'golden/sentencepiece/test_model.model'
  processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
  pieces = [processor.id_to_piece(i) for i in range(3, processor.get_piece_size())]
  dictionary(tmp_path, pieces)
  (tmp_path / 'sentencepiece.bpe.model').write_bytes(model.read_bytes())
  file, said = fairseq_vocabulary.write(tmp_path, len(pieces) + 5, tmp_path)
  vocabulary = load_vocabulary(file)
  assert said == [] and vocabulary.special == dict(cls=0, sep=2, pad=1, mask=len(pieces) + 4, unk=3)
  texts = (
    'I saw a girl with a telescope.',
    'Ｆｕｌｌ width',
    'two  spaces, "quotes"',
    'a b ',
    '  a',
    '',
  )
  for text in (*texts, ' ', 'a \u2581', 'cafe\u0301 au lait'):
    (ids,) = vocabulary.encode_batch([text])
    want = [3 if i == 0 else i + 1 for i in processor.encode(text)]
    assert ids.tolist() == want, text


@pytest.mark.parametrize(
  'lines, message',
  [('a 1\nb\n', "line 2: expected 'SYMBOL COUNT', got 'b'"), ('a 1\na 2\n', 'every symbol once')],
)
def test_a_dictionary_that_is_none_is_refused(lines, message, tmp_path):
  (tmp_path / 'dict.txt').write_text(lines)
  with pytest.raises(ValueError, match=message):
    fairseq_vocabulary.write(tmp_path, 7, tmp_path)


def test_why_there_is_no_vocabulary(tmp_path):
  why = lambda: fairseq_vocabulary.write(tmp_path, 7, None)[1][0]
  assert 'no dict.txt' in why()
  dictionary(tmp_path, ['12', '13', '14'])
  assert 'has 8 ids with the special ones, the word table 7 rows' in why()
  dictionary(tmp_path, ['ab@@', 'c'])
  assert 'pieces of words' in why()
