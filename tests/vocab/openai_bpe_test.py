"""GPT-1's vocabulary: text cleaned, cut and merged as its own program does."""

import json
import lzma
import sys

import ftfy
import pytest
from mutation import mutation
from slow_imports import transformers

from bertjax.errors import UserError
from bertjax.export import receipt
from bertjax.formats import tokenizer
from bertjax.vocab import openai_bpe
from bertjax.vocab.vocabulary import load_vocabulary

PIECES = ['<unk>', *"'abcdeghilmnorstw.", 'th', "n'", *(c + '</w>' for c in 'eot.\n')]
PIECES += ['the</w>', "n't</w>", 'do</w>']
MERGES = ['t h', 'th e</w>', "n '", "n' t</w>", 'd o</w>']


@pytest.fixture(scope='module')
def lines(shared):
  """What the program made of 300 odd lines."""
  return json.loads((shared / 'golden/family/gpt1_bpe.json').read_text(encoding='utf-8'))


@pytest.fixture
def toy(tmp_path):
  index = {piece: i for i, piece in enumerate(PIECES)}
  (tmp_path / 'vocab.json').write_text(json.dumps(index))
  (tmp_path / 'merges.txt').write_text('\n'.join(['#version: 0.2', *MERGES, '']))
  return tmp_path


@mutation(r'\1*', '')
@mutation(r'[^\S\n]+', ' +')
def test_text_is_cleaned_as_by_the_original(lines):
  found = [openai_bpe.standardized(ftfy.fix_text(line)) for line in lines['lines']]
  assert found == lines['standardized']


@mutation("|''|'[sS]|", "|'[sS]|")
@mutation("f'{found[-1]}.' in EXCEPTIONS", 'False')
@mutation('or right in _QUOTES)\n', 'or False)\n')
def test_words_are_those_that_spacy_cuts(lines):
  wanted = [['\n' if word == '\n ' else word for word in words] for words in lines['words']]
  assert [openai_bpe.words(line) for line in lines['standardized']] == wanted


@mutation("if unicodedata.category(c) == 'So'", 'if False')
def test_long_runs_of_symbols_and_of_affixes_are_cut():
  assert openai_bpe.words('─' * 2_000) == ['─'] * 2_000
  assert ''.join(openai_bpe.words("'" * 20_000)) == "'" * 20_000
  assert openai_bpe.words('a' + '.' * 50) == ['a', '.' * 50]


@mutation("pre_tokenizers.Split(' ', 'removed')", 'pre_tokenizers.WhitespaceSplit()')
def test_ids_are_those_of_the_original(lines, shared, tmp_path):
  for theirs, ours in (('encoder_bpe_40000.json', 'vocab.json'), ('vocab_40000.bpe', 'merges.txt')):
    packed = (shared / f'golden/family/gpt1_{theirs}.xz').read_bytes()
    (tmp_path / ours).write_bytes(lzma.decompress(packed))
  vocabulary = load_vocabulary(tmp_path)
  assert vocabulary.size == 40_478
  assert [ids.tolist() for ids in vocabulary.encode_batch(lines['lines'])] == lines['ids']
  settings = json.dumps(dict(tokenizer_class='OpenAIGPTTokenizer'))
  (tmp_path / 'tokenizer_config.json').write_text(settings)
  theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))(lines['lines'])['input_ids']
  assert sum(a != b for a, b in zip(theirs, lines['ids'], strict=True)) == 175  # docs/generate.md


def test_a_saved_vocabulary_is_the_same(toy, tmp_path):
  vocabulary = load_vocabulary(toy)
  ids = vocabulary.encode_batch(["Don't.\nThe ”Ω"])[0]
  assert [vocabulary.pieces[i] for i in ids] == [
    'do</w>', "n't</w>", '.</w>', '\n</w>', 'the</w>', '<unk>', '<unk>'
  ]  # fmt: skip
  assert vocabulary.decode(ids[:5]) == "do n't . \n the"
  vocabulary.save(tmp_path / 'copy')
  assert load_vocabulary(tmp_path / 'copy').meta == vocabulary.meta


@mutation('openai_bpe.MARK in (index := tokenizer.get_vocab()) and of_words.is_file()', 'False')
@mutation(' and of_words.is_file()', '')
@mutation('if index == unique_keys(refusals.text_of(of_words)):', 'if index:')
def test_an_export_says_that_transformers_has_other_words(toy, tmp_path):
  vocabulary, out = load_vocabulary(toy), tmp_path / 'out'
  tokenizer.write(vocabulary, out, 'openai_gpt', 64)
  theirs = transformers.AutoTokenizer.from_pretrained(str(out))
  assert type(theirs).__name__ == 'OpenAIGPTTokenizer' and theirs('the')['input_ids'] == [
    PIECES.index('the</w>')
  ]
  assert theirs("don't")['input_ids'] != vocabulary.encode_batch(["don't"])[0].tolist()
  assert 'cuts words as BERT does' in receipt.compared_ids(out, vocabulary, None)['skipped']
  assert load_vocabulary(out).meta == vocabulary.meta
  for name in ('out', 'alone'):
    theirs.save_pretrained(tmp_path / name)  # tokenizer.json
  assert load_vocabulary(out).meta == vocabulary.meta
  assert load_vocabulary(tmp_path / 'alone').type == 'bpe'
  theirs.add_tokens(['_start_'])  # as a model that was fine-tuned has them
  theirs.save_pretrained(out)
  assert load_vocabulary(out).pieces[-1] == '_start_'


def test_what_cannot_be_done_is_refused(toy, monkeypatch):
  with pytest.raises(UserError, match='lowercase=False was asked for'):
    load_vocabulary(toy, lowercase=False)
  monkeypatch.setitem(sys.modules, 'ftfy', None)
  with pytest.raises(UserError, match='pip install ftfy'):
    load_vocabulary(toy)
