"""A piece that comes twice is refused, with both places."""

import json

import pytest

from bertjax.vocab.unique import unique_keys, unique_pieces
from bertjax.vocab.vocabulary import load_vocabulary

SPECIAL = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']


@pytest.mark.parametrize('again', ['cat', 'cat\r', 'cat\t7'])
def test_lines_of_vocab_txt(tmp_path, again):
  lines = [*SPECIAL, 'cat', 'dog', again]
  (tmp_path / 'vocab.txt').write_bytes(('\n'.join(lines) + '\n').encode())
  with pytest.raises(ValueError, match="vocab.txt .*'cat' is line 6 and again line 8"):
    load_vocabulary(tmp_path)


def test_keys_of_json():
  assert unique_keys('{"a": [{"b": 1}, {"b": 2}], "c": 1}') == {'a': [{'b': 1}, {'b': 2}], 'c': 1}
  with pytest.raises(ValueError, match="'b' is entry 1 .* value 1, and again entry 3, with 2"):
    unique_keys('{"a": {"b": 1, "c": 5, "b": 2}}')


def test_vocab_json_and_tokenizer_json(tmp_path):
  (tmp_path / 'merges.txt').write_text('#version: 0.2\n')
  (tmp_path / 'vocab.json').write_text('{"<s>": 0, "a": 1, "b": 2, "a": 3}')
  with pytest.raises(ValueError, match="vocab.json .*'a' is entry 2 .* again entry 4"):
    load_vocabulary(tmp_path)
  (tmp_path / 'vocab.json').write_text('{"<s>": 0, "a": 1, "b": 1}')
  with pytest.raises(ValueError, match="'a' and 'b' have the same id, 1|'b' and 'a' have"):
    load_vocabulary(tmp_path)
  model = dict(type='Unigram', unk_id=0, vocab=[['<unk>', 0.0], ['a', -1.0], ['a', -2.0]])
  spec = dict(version='1.0', normalizer=None, pre_tokenizer=None, model=model, added_tokens=[])
  (tmp_path / 'tokenizer.json').write_text(json.dumps(spec))
  with pytest.raises(ValueError, match="tokenizer.json .*'a' is entry 2 and again entry 3"):
    load_vocabulary(tmp_path)


def test_lines_of_fastbpe(tmp_path):
  (tmp_path / 'codes_x').write_text('a b 3\n')
  (tmp_path / 'vocab_x').write_text('ab 3\nc 2\nab 1\n')
  with pytest.raises(ValueError, match="codes_x .*'ab' is line 1 and again line 3"):
    load_vocabulary(tmp_path / 'codes_x')


def test_numbers_of_pieces():
  assert unique_pieces(['a', 'b']) == {'a': 0, 'b': 1}


def test_published_vocabularies_have_no_piece_twice(shared):
  for name in ('bert-base-multilingual-cased', 'ernie-1.0', 'gpt2', 'roberta'):
    assert load_vocabulary(shared / 'tokenizers' / name).size
