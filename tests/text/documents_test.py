"""Documents with what is known of their lines."""

import pytest
from mutation import mutation

from bertjax.store.encode import Options, encode
from bertjax.text import documents as documents_lib
from bertjax.vocab.vocabulary import load_vocabulary


def split(text, how='lines', **values):
  got = documents_lib.split(text, values, how)
  return list(zip(got.texts, *got.values.values(), strict=True))


def test_the_text_of_a_record_may_hold_the_separator():
  record = documents_lib.join(b'a\x1fb', ['en', '0'])
  assert documents_lib.text_of(record, documents_lib.COLUMNS) == b'a\x1fb'
  assert documents_lib.text_of(b'a\x1fb', ()) == b'a\x1fb'
  with pytest.raises(ValueError, match='is no part of a language'):
    documents_lib.join(b'a', ['e\x1fn'])
  for half in ('fran\udce7ais', '\ud83d'):  # a byte of Latin-1, and half of an emoji
    with pytest.raises(ValueError, match='a language or role is no UTF-8'):
      documents_lib.join(b'a', [half])


@pytest.mark.parametrize(
  ('values', 'message'),
  [
    (dict(language=''), "no language; it begins with 'a'"),
    (dict(language='en de fr'), '2 lines and 3 values of language'),
    (dict(language='en+de+fr'), '2 lines and 3 values of language'),
    (dict(role='0 256'), "from 0 to 255, got '0 256'"),
    (dict(role='x'), "from 0 to 255, got 'x'"),
  ],
)
def test_values_that_do_not_fit_are_named(values, message):
  with pytest.raises(ValueError, match=message):
    documents_lib.split('a\nb', values, 'lines')


@mutation('whole_U = np.repeat(~broken_D, size_D)', 'whole_U = np.ones(len(kept_U), bool)')
def test_encoding_keeps_values_beside_the_sentences_that_are_left(tmp_path):
  (tmp_path / 'vocab.txt').write_text('[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n')
  vocabulary = load_vocabulary(tmp_path / 'vocab.txt')
  options = Options('', None, 'lines', 'strict', ('language', 'role'))
  documents = [
    documents_lib.join('a\n\u200b\nb b'.encode(), ['fr', '1 2 3']),
    documents_lib.join(b'a\nb a', ['en+de', '0']),
    documents_lib.join('a a a\n\u200b'.encode(), ['en+de', '0']),
    documents_lib.join(b'', ['de', '']),
    documents_lib.join(b'b', ['de', '7']),
  ]
  got = encode(documents, vocabulary, options)
  assert got.token_n.tolist() == [5, 6, 6, 5, 6, 5, 6]
  assert got.length_S.tolist() == [1, 2, 1, 2, 1] and got.size_D.tolist() == [2, 2, 0, 0, 1]
  assert got.languages == ['fr', 'en', 'de'] and got.column['language'].tolist() == [0, 0, 1, 2, 2]
  assert got.column['role'].tolist() == [1, 3, 0, 0, 7]
  assert got.counted['empty_sentences'].tolist() == [1, 0, 0, 0, 0]
  assert got.counted['broken_pairs'].tolist() == [0, 0, 1, 0, 0]
  assert got.counted['bytes'].tolist() == [9, 5, 9, 0, 1]
