"""Documents as ids: sentences cut out of a paragraph are its text when laid end to end."""

import lzma

import pytest
from mutation import mutation
from slow_imports import transformers

from bertjax.store.encode import Options, encode
from bertjax.text import documents as documents_lib
from bertjax.vocab.vocabulary import load_vocabulary

SENTENCES = Options('', None, 'sentences', 'strict')


@mutation('split(text, said, options.split, spaced)', 'split(text, said, options.split)')
@mutation("f' {sentence}' if spaced and apart and number ", "f' {sentence}' if spaced and number ")
def test_sentences_of_a_paragraph_have_the_ids_of_the_paragraph(shared):
  path = shared / 'tokenizers' / 'roberta'
  theirs = transformers.RobertaTokenizer.from_pretrained(str(path))
  with lzma.open(shared / 'text_en/enwiki_featured/valid.txt.xz', 'rt', encoding='utf-8') as file:
    lines = [' '.join(line.split()) for line, _ in zip(file, range(200), strict=False)]
  lines = [line for line in lines if line] + ['One. Two?Three! (Four.) 一。二。 三。']
  got = encode([line.encode() for line in lines], load_vocabulary(path), SENTENCES)
  assert got.size_D.max() > 5  # of a paragraph
  expected = theirs(lines, add_special_tokens=False, verbose=False, split_special_tokens=True)
  assert got.token_n.tolist() == sum(expected['input_ids'], [])


@mutation('dtype = dict(language=np.int32)', 'dtype = dict(language=np.uint8)')
def test_a_batch_may_name_more_languages_than_a_store_holds(tmp_path):
  """Whoever adds batches up says that they are too many."""
  (tmp_path / 'vocab.txt').write_text('[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n')
  records = [documents_lib.join(b'a', [f'l{number}']) for number in range(300)]
  options = SENTENCES._replace(columns=('language',))
  got = encode(records, load_vocabulary(tmp_path / 'vocab.txt'), options)
  assert got.column['language'].tolist() == list(range(300)) and len(got.languages) == 300


@pytest.mark.parametrize(
  ('name', 'reads'), [('gpt2', True), ('bert-base-uncased', False), ('xlnet', False)]
)
def test_who_reads_the_space_before_a_sentence(shared, name, reads):
  assert load_vocabulary(shared / 'tokenizers' / name).reads_first_space == reads
