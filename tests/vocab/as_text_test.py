"""Text that spells a special token stays text, whatever the vocabulary."""

import itertools

import published
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from bertjax.vocab.train import TRAINERS
from bertjax.vocab.vocabulary import load_vocabulary

REAL = (
  'bert-base-uncased', 'ernie-1.0', 'roberta', 'gpt2', 't5', 'xlnet/spiece.model', published.XLM,
)  # fmt: skip


def spelled(vocabulary):
  special = {i for i in vocabulary.special.values() if i is not None}
  return [vocabulary.pieces[i] for i in special if len(vocabulary.pieces[i]) > 1]


def check(vocabulary, unknown_may_come=False):
  """No special id comes of any way to write one."""
  names = spelled(vocabulary)
  assert names
  texts = [t for n in names for t in (n, f'a {n} b', f'a{n}b', n * 3, f' {n}. {names[0]}', n[1:])]
  texts += [a + b for a, b in itertools.permutations(names, 2)]
  ends = vocabulary.special.get('eos')
  special = {i for i in vocabulary.special.values() if i is not None and i != ends}
  if unknown_may_come:
    special.discard(vocabulary.special['unk'])
  for text, ids in zip(texts, vocabulary.encode_batch(texts), strict=True):
    found = ids[:-1] if ends is not None else ids
    assert special.isdisjoint(found.tolist()) and ends not in found.tolist(), (text, ids)
  assert vocabulary.count_spelled([b'plain [text] <i>']) == 0
  joined = ' '.join(names).encode()
  assert vocabulary.count_spelled([joined, b'', joined]) == 2 * len(names)


@pytest.mark.parametrize('name', REAL)
def test_real_vocabularies(shared, name):
  if name == published.XLM:
    pytest.importorskip('sacremoses')
  # A piece like ] may be missing, and is then unknown.
  check(published.vocabulary(shared, name), name in ('t5', 'ernie-1.0', published.XLM))


@pytest.mark.parametrize('kind', TRAINERS)
def test_trained_vocabularies(tmp_path, kind):
  texts = ['a cat [sat] on <mat> | ends of text MASK s pad unk cls sep eos', 'a b [ab]'] * 50
  size = dict(unigram=36, t5=134).get(kind, 300)
  TRAINERS[kind](texts, size, False, tmp_path)
  vocabulary = load_vocabulary(tmp_path)
  if kind in ('characters', 'bytes'):  # whose end of a line is a character
    assert {'<unk>', '<pad>'} == set(spelled(vocabulary))
  check(vocabulary, True)


def unigram(path, special=True):
  """A tokenizer.json whose model takes <mask> for the best piece of all."""
  pieces = [('<unk>', 0.0), ('<mask>', 0.0), ('<s>', 0.0)]
  pieces += [(c, -5.0) for c in '<>abkmnsu▁/.'] + [('▁a', -1.0), ('ask', -1.0)]
  tokenizer = Tokenizer(models.Unigram(pieces, 0))
  tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme='never')
  if special:
    tokenizer.add_special_tokens(['<mask>', '<s>'])
  tokenizer.save(str(path / 'tokenizer.json'))
  return load_vocabulary(path / 'tokenizer.json')


def test_a_tokenizer_that_cannot_be_told_gets_the_text_in_parts(tmp_path):
  vocabulary = unigram(tmp_path)
  check(vocabulary)
  text = 'a <mask>b a<s> <mask><mask>'
  (ids,) = vocabulary.encode_batch([text])
  assert ''.join(vocabulary.pieces[i] for i in ids) == text.replace(' ', '▁')
  token_n, length_n, begin_n, end_n = vocabulary.encode_spans(['a b', text, '', 'b'])
  second = slice(length_n[0], length_n[0] + length_n[1])
  assert token_n[second].tolist() == ids.tolist()
  covered = [text[a:b] for a, b in zip(begin_n[second], end_n[second], strict=True)]
  assert ''.join(covered).replace(' ', '') == text.replace(' ', '')
