"""XLM's vocabularies: ids of transformers' XLMTokenizer, languages, what is refused."""

import json
import lzma
import sys

import published
import pytest
from mutation import mutation
from slow_imports import transformers

from bertjax.vocab import fastbpe
from bertjax.vocab.vocabulary import load_vocabulary

# A piece of its own is never read before a merge of lower rank is made.
CODES = ['t h 9', 'th e</w> 8', 'c a 7', 'ca t</w> 6', 's a 5', 'a t</w> 4']
WORDS = ['the', 'cat', 'c@@', 'at', 's@@', '.', 'é', 'x', 'a@@']


@pytest.fixture
def files(tmp_path):
  (tmp_path / 'codes_toy').write_text('\n'.join(CODES) + '\n')
  lines = [f'{word} {100 - i}' for i, word in enumerate(WORDS)]
  (tmp_path / 'vocab_toy').write_text('\n'.join(lines) + '\n')
  return tmp_path


def test_ids_are_those_of_the_dictionary(files):
  vocabulary = load_vocabulary(files)
  assert vocabulary.type == 'fastbpe' and vocabulary.size == 14 + len(WORDS)
  assert {k: vocabulary.special[k] for k in ('sep', 'pad', 'unk', 'mask')} == dict(
    sep=1, pad=2, unk=3, mask=5
  )
  pieces = vocabulary.encode_batch(['The cat sat.', 'xa'])
  # sa t</w> is no word of the vocabulary: the codes go their way, and the rest is unknown.
  names = [[vocabulary.pieces[i] for i in ids] for ids in pieces]
  assert names == [['the</w>', 'cat</w>', '<unk>', '<unk>', '.</w>'], ['<unk>', '<unk>']]
  assert vocabulary.decode(pieces[0][:2]) == 'the cat'


@mutation("if '\\u2028' not in line]", ']')
def test_lines_that_the_original_skips_have_no_id(files):
  before = load_vocabulary(files).pieces
  file = files / 'vocab_toy'
  file.write_text('\n7\nzz\u20283\n' + file.read_text() + 'cat 3\n<s> 2\na\xa0b 2\n\n')
  assert load_vocabulary(files).pieces == before


def test_a_saved_vocabulary_is_the_same_and_may_be_cut(files, tmp_path):
  (files / 'tokenizer_config.json').write_text('{"max_vocab": 18}')
  vocabulary = load_vocabulary(files)
  assert vocabulary.size == 18 and vocabulary.pieces[-1] == 'at</w>'
  vocabulary.save(tmp_path / 'copy')
  copy = load_vocabulary(tmp_path / 'copy')
  assert copy.meta == vocabulary.meta and copy.pieces == vocabulary.pieces


@mutation('words = list(cut(normalise(text)))', 'words = list(moses.cut(text))')
@mutation('sacremoses.MosesTokenizer(lang=language)', "sacremoses.MosesTokenizer(lang='en')")
def test_equals_transformers(shared, tmp_path):
  vocabulary = published.vocabulary(shared, published.XLM)
  assert not vocabulary.reads_first_space
  assert (vocabulary.lowercase, vocabulary.accents) == (True, False)
  index = {piece: i for i, piece in enumerate(vocabulary.pieces)}
  (tmp_path / 'vocab.json').write_text(json.dumps(index))
  codes = (shared / 'tokenizers/xlm-xnli15/codes_xnli_15').read_text(encoding='utf-8')
  (tmp_path / 'merges.txt').write_text(codes)
  files = (str(tmp_path / 'vocab.json'), str(tmp_path / 'merges.txt'))
  theirs = transformers.XLMTokenizer(*files, lang2id=None, id2lang=None)
  for language in 'en de es fr ar hi sw tr ur vi'.split():
    with lzma.open(shared / f'multilingual/xnli/test.{language}.jsonl.xz', 'rt') as lines:
      texts = [json.loads(line)['premise'] for line, _ in zip(lines, range(20), strict=False)]
    ours = vocabulary.of_language(language).encode_batch(texts)
    for text, ids in zip(texts, ours, strict=True):
      tokens = theirs._tokenize(text, lang=language)
      assert ids.tolist() == theirs.convert_tokens_to_ids(tokens), (language, text)


@mutation('languages = [self.language] * len(texts)', "languages = ['en'] * len(texts)")
@mutation('      self.check_language(language)\n', '      pass\n')
def test_texts_may_all_be_in_one_language(shared, monkeypatch):
  vocabulary = published.vocabulary(shared, published.XLM)
  text = "L'homme qu'il a vu."
  french, english = (vocabulary.encode_flat([text], [each])[0].tolist() for each in ('fr', 'en'))
  own = vocabulary.of_language('fr')
  assert own.encode_batch([text])[0].tolist() == french != english
  assert own.encode_flat([text], ['en'])[0].tolist() == english
  assert vocabulary.encode_batch([text])[0].tolist() == english
  monkeypatch.setitem(sys.modules, 'sacremoses', None)
  fastbpe._moses.cache_clear()
  with pytest.raises(ValueError, match="language 'zh' .*sacremoses"):
    vocabulary.of_language('zh')
