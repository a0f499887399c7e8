"""Files that are no vocabulary are refused by name; an error of ours keeps its type."""

import json

import pytest
from mutation import mutation
from tokenizers import Tokenizer, models

from bertjax.errors import UserError
from bertjax.vocab import formats
from bertjax.vocab.vocabulary import load_vocabulary

PIECES = '[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n'
BPE = {'vocab.json': '{"<s>": 0, "a": 1, "b": 2, "ab": 3}', 'merges.txt': '#version: 0.2\na b\n'}
GARBAGE = bytes(range(256))


def tokenizer(**model) -> str:
  """A tokenizer.json with this model."""
  return json.dumps(dict(version='1.0', added_tokens=[], model=model))


def words(**ids: int) -> str:
  """A tokenizer of [UNK] and of words with these ids."""
  return tokenizer(type='WordLevel', unk_token='[UNK]', vocab={'[UNK]': 0} | ids)


TWICE = tokenizer(type='Unigram', unk_id=0, vocab=[['<unk>', 0.0], ['a', -1.0], ['a', -2.0]])


def cut_at_random() -> str:
  """A BPE that leaves out merges by chance, as one trained with dropout is saved."""
  return tokenizer(type='BPE', dropout=0.1, vocab=dict(a=0, b=1, ab=2), merges=['a b'])


def without_unknown() -> str:
  """A tokenizer whose [UNK] is not among its words: it fails as soon as it meets another word."""
  return Tokenizer(models.WordLevel({'a': 0, '[PAD]': 1, '[SEP]': 2}, '[UNK]')).to_str()


@pytest.mark.parametrize(
  ('files', 'said'),
  [
    ({'tokenizer.json': '{"model": {"type": "BPE"'}, 'no JSON'),
    ({'tokenizer.json': '[' * 100_000}, 'no JSON'),
    ({'tokenizer.json': '{"version": "1.0", "model": {"type": "Own"}}'}, ''),
    ({'tokenizer.json': '{}'}, 'Model missing'),
    ({'tokenizer.json': words(a=-1)}, ''),
    ({'tokenizer.json': words(a=1, b=1)}, 'have the same id, 1'),
    ({'tokenizer.json': GARBAGE}, 'not UTF-8'),
    ({'tokenizer.json': cut_at_random()}, r'at random, model.dropout=0.1: expected null'),
    ({'tokenizer.json': without_unknown()}, r'\[UNK\]'),
    ({'vocab.txt': GARBAGE}, 'not UTF-8'),
    ({'vocab.txt': PIECES, formats.CONFIG: '{"do_lower'}, f'{formats.CONFIG}: .*no JSON'),
    ({'vocab.txt': PIECES, formats.CONFIG: '[1]'}, 'tokenizer_config.json: expected'),
    ({**BPE, 'vocab.json': '{"a": "b"}'}, ''),
    ({**BPE, 'merges.txt': '#version: 0.2\na c\n'}, ''),
    ({**BPE, 'merges.txt': GARBAGE}, ''),
    ({'x.model': GARBAGE}, ''),
    ({'codes_x': 'a b 3\n', 'vocab_x': GARBAGE}, 'vocab_x is not UTF-8'),
    ({**BPE, 'vocab.json': '{"a": 1, "b": 2, "a": 3}'}, "'a' is entry 1 .* again entry 3"),
    ({**BPE, 'vocab.json': '{"<s>": 0, "a": 1, "b": 1, "ab": 2}'}, 'have the same id, 1'),
    ({'tokenizer.json': TWICE}, "'a' is entry 2 and again entry 3"),
    ({'codes_x': 'a b 3\n', 'vocab_x': 'ab\nc\n'}, "lines of a piece and its count, got 'ab'"),
    ({'codes_x': GARBAGE, 'vocab_x': 'a 1\n'}, 'codes_x is not UTF-8'),
  ],
)
@mutation('if type(error) not in (Exception, RuntimeError):', 'if error:')
@mutation("if spec['model'].get('dropout'):", 'if False:', file='bertjax/vocab/formats.py')
def test_a_file_that_is_no_vocabulary_is_refused_by_name(tmp_path, files, said):
  for name, content in files.items():
    data = content.encode() if isinstance(content, str) else content
    (tmp_path / name).write_bytes(data)
  first = next(iter(files))
  with pytest.raises(UserError, match=f'(?s){first} cannot be read as a vocabulary: .*{said}'):
    load_vocabulary(tmp_path / first)


@pytest.mark.parametrize('error', [ValueError, RuntimeError])
@mutation('UserError as', '(ValueError, RuntimeError) as', file='bertjax/vocab/vocabulary.py')
def test_an_error_of_ours_keeps_its_type(tmp_path, monkeypatch, error):
  def wrong(*_):
    raise error('of ours')

  monkeypatch.setattr(formats, '_rust', wrong)
  (tmp_path / 'vocab.txt').write_text(PIECES)
  (tmp_path / 'tokenizer.json').write_text(without_unknown())
  for name in ('vocab.txt', 'tokenizer.json'):
    with pytest.raises(error) as caught:
      load_vocabulary(tmp_path / name)
    assert type(caught.value) is error
