"""Vocabularies give the ids of the `transformers` tokenizers of the same files."""

import gzip
import json
import lzma
import shutil

import numpy as np
import published
import pytest
from mutation import mutation
from slow_imports import sentencepiece, transformers
from tokenizers import Tokenizer, models

from bertjax.vocab.vocabulary import load_vocabulary

ODD = (
  "Hello  world, it's naïve café 1,234, 5,",
  "``quoted'' text\u00a0nbsp ﬁne Ｆｕｌｌ 日本語。 \u200bzero \t tab",
  ' leading </s> <pad> [MASK] a <mask>  b [SEP] x',
  'İstanbul ΑΣ straße 😀🏽 \u2028 x\x85y a\u0301 ',
  '\ufeffbom',
  f'\u200fright\u200e \x0c\x01\x1b {"x" * 200} c',
  'a\x00b',
  ' ',
  '',
)
PIECES = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'the', 'cat', '##s', 'é', 'e', '\u2028']


@pytest.fixture(scope='module')
def texts(shared):
  """English, Chinese and fourteen other languages, and odd characters."""
  found = list(ODD)
  for name in ('text_en/enwiki_featured/valid.txt.xz', 'zh/zhwiki/valid.txt.xz'):
    with lzma.open(shared / name, 'rt', encoding='utf-8') as file:
      found += [line.rstrip('\n') for line, _ in zip(file, range(120), strict=False)]
  for path in sorted(shared.glob('multilingual/parallel/laser_tatoeba/*.gz')):
    with gzip.open(path, 'rt', encoding='utf-8') as file:
      found += [line.rstrip('\n') for line, _ in zip(file, range(20), strict=False)]
  return found


@pytest.mark.parametrize(
  ('name', 'kind', 'lowercase'),
  [
    ('bert-base-uncased', 'BertTokenizer', True),
    ('bert-base-cased', 'BertTokenizer', False),
    pytest.param('bert-base-multilingual-cased', 'BertTokenizer', False, marks=pytest.mark.full),
    ('roberta', 'RobertaTokenizer', None),
    ('gpt2', 'GPT2Tokenizer', None),
  ],
)
def test_ids_equal_those_of_transformers(shared, texts, name, kind, lowercase):
  path = shared / 'tokenizers' / name
  options = {} if lowercase is None else dict(do_lower_case=lowercase)
  theirs = getattr(transformers, kind).from_pretrained(str(path), **options)
  ours = published.vocabulary(shared, name)
  assert ours.lowercase == bool(lowercase) and ours.size == len(theirs)
  options = dict(add_special_tokens=False, verbose=False, split_special_tokens=True)
  expected = theirs(texts, **options)['input_ids']
  assert [ids.tolist() for ids in ours.encode_batch(texts)] == expected
  token_n, length_n = ours.encode_flat(texts)
  assert token_n.tolist() == sum(expected, []) and length_n.tolist() == list(map(len, expected))
  if kind != 'GPT2Tokenizer':  # which has one special token, for all purposes
    assert ours.special == {role: getattr(theirs, f'{role}_token_id') for role in ours.special}


def test_t5_ids_equal_those_of_transformers(shared, texts, tmp_path):
  model = shared / 'tokenizers/t5/cc_all.32000.100extra.model'
  shutil.copy(model, tmp_path / 'spiece.model')
  theirs = transformers.T5Tokenizer.from_pretrained(str(tmp_path))
  ours = load_vocabulary(tmp_path)
  plain = [text for text in texts if text not in ODD]
  expected = theirs(plain, add_special_tokens=False, verbose=False)['input_ids']
  # transformers takes it for granted that <unk> is 2; in this model it is 3.
  unk = ours.special['unk']
  got = [[2 if i == unk else i for i in ids.tolist()] for ids in ours.encode_batch(plain)]
  assert unk == 3 and got == expected


def test_xlnet_text_is_cleaned_as_the_original_does(shared):
  # Not against transformers, whose version 5 puts a space after every punctuation mark here.
  ours = published.vocabulary(shared, 'xlnet/spiece.model')
  original = sentencepiece.SentencePieceProcessor(model_file=str(ours.files[0]))
  ids = ours.encode_batch(["The ``naïve'' Café Irish-born"])[0]
  assert ids.tolist() == original.encode('The "naive" Cafe Irish-born')


def test_tokenizer_json_equals_its_parts(shared, texts, tmp_path):
  for name, kind in (('bert-base-cased', 'BertTokenizer'), ('roberta', 'RobertaTokenizer')):
    path = shared / 'tokenizers' / name
    options = dict(do_lower_case=False) if kind == 'BertTokenizer' else {}
    theirs = getattr(transformers, kind).from_pretrained(str(path), **options)
    theirs.backend_tokenizer.enable_truncation(4)  # as some published files are saved
    theirs.backend_tokenizer.save(str(tmp_path / 'tokenizer.json'))
    ours, parts = load_vocabulary(tmp_path / 'tokenizer.json'), published.vocabulary(shared, name)
    assert ours.special == parts.special and ours.type == parts.type
    np.testing.assert_array_equal(ours.word_starts, parts.word_starts)
    np.testing.assert_array_equal(ours.encode_flat(texts[:99])[0], parts.encode_flat(texts[:99])[0])
    with pytest.raises(ValueError, match='lowercase=True was asked for'):
      load_vocabulary(tmp_path, lowercase=True)


def write_pieces(path, pieces=PIECES):
  path.write_text('\n'.join(pieces) + '\n', encoding='utf-8')
  return path


def test_lowercase_comes_from_the_caller_then_the_config_then_the_pieces(tmp_path):
  file = write_pieces(tmp_path / 'vocab.txt', [*PIECES, 'The'])
  assert not load_vocabulary(file).lowercase
  assert load_vocabulary(file, lowercase=True).lowercase
  for said, lowercase in ((None, False), (True, True)):
    (tmp_path / 'tokenizer_config.json').write_text(json.dumps(dict(do_lower_case=said)))
    assert load_vocabulary(tmp_path).lowercase is lowercase
  assert not load_vocabulary(tmp_path, lowercase=False).lowercase


@mutation('alone.get(file.suffix, file.name)', 'file.name')
def test_saved_copy_is_the_same_vocabulary(tmp_path):
  file = write_pieces(tmp_path / 'bert-base-uncased-vocab.txt')
  vocabulary = load_vocabulary(file, lowercase=False)
  vocabulary.save(tmp_path / 'copy')
  copy = load_vocabulary(tmp_path / 'copy')
  assert copy.meta == vocabulary.meta and not copy.lowercase
  assert copy.encode_batch(['The'])[0].tolist() == [1]


def test_what_is_no_vocabulary_is_refused(tmp_path):
  with pytest.raises(ValueError, match='there is no file .*bertjax.vocab'):
    load_vocabulary(tmp_path / 'none.txt')
  with pytest.raises(ValueError, match='expected one of tokenizer.json'):
    load_vocabulary(tmp_path)
  with pytest.raises(ValueError, match='no vocabulary that we know'):
    load_vocabulary(write_pieces(tmp_path / 'pieces.csv'))
  with pytest.raises(ValueError, match=r'vocab.txt cannot be read.*\[UNK\]'):
    load_vocabulary(write_pieces(tmp_path / 'vocab.txt', ['a', 'b']))
  (tmp_path / 'vocab.json').write_text('{}')
  with pytest.raises(ValueError, match='merges.txt is missing'):
    load_vocabulary(tmp_path / 'vocab.json')


@mutation("refusals.text_of(file, 'utf-8-sig')", 'refusals.text_of(file)')
def test_a_bom_is_no_part_of_the_first_piece(tmp_path):
  write_pieces(tmp_path / 'vocab.txt', PIECES)
  plain = load_vocabulary(tmp_path)
  (tmp_path / 'vocab.txt').write_bytes(b'\xef\xbb\xbf' + (tmp_path / 'vocab.txt').read_bytes())
  assert load_vocabulary(tmp_path).pieces == plain.pieces
  assert load_vocabulary(tmp_path).special['pad'] == 0


@pytest.mark.parametrize(
  ('lines', 'size'),
  [
    (['', *PIECES[:9]], 10), ([*PIECES[:6], '', '', *PIECES[6:9]], 11), ([*PIECES[:9], '', ''], 9),
    ([*PIECES[:9], 'the', 'dog'], 11), (['[PAD] ', *PIECES[1:9]], 9), (PIECES[:9], 9),
  ],
)  # fmt: skip
@pytest.mark.parametrize('end', ['\n', '\r\n'])
@mutation("strip(' ') for line", "strip('#') for line")
@mutation('in enumerate(pieces) if piece}', 'in enumerate(filter(None, pieces))}')
def test_every_line_of_a_trained_vocabulary_keeps_its_id(tmp_path, lines, size, end):
  (tmp_path / 'vocab.txt').write_bytes(end.join([*lines, '']).encode())
  ours = load_vocabulary(tmp_path)
  theirs = models.WordPiece.from_file(str(tmp_path / 'vocab.txt'), unk_token='[UNK]')
  ids = [theirs.token_to_id(piece) for piece in ('the', 'cat', '##s', 'é')]
  assert ours.size == size and ours.encode_batch(['the cats é'])[0].tolist() == ids
  for role in ('pad', 'unk', 'cls', 'sep', 'mask'):
    assert ours.special[role] == theirs.token_to_id(f'[{role.upper()}]')


@mutation("spec.get('normalizer')", "spec['normalizer']")
def test_a_tokenizer_json_may_leave_parts_out(tmp_path):
  tokenizer = Tokenizer(models.WordLevel({'a': 0, '[UNK]': 1}, '[UNK]'))
  spec = json.loads(tokenizer.to_str())
  del spec['normalizer'], spec['pre_tokenizer'], spec['model']['type']
  (tmp_path / 'tokenizer.json').write_text(json.dumps(spec))
  vocabulary = load_vocabulary(tmp_path)
  assert vocabulary.encode_batch(['a'])[0].tolist() == [0] and vocabulary.type == 'wordlevel'
