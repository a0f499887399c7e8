"""Units: phrases and entities found in a text, and carried to its tokens."""

import lzma

import numpy as np
import published
import pytest
from mutation import mutation

from bertjax.text import phrases
from bertjax.vocab.vocabulary import load_vocabulary


def lexicon(tmp_path, *entries):
  (tmp_path / 'lexicon.txt').write_text('\n'.join(entries) + '\n')
  return phrases.Lexicon(str(tmp_path / 'lexicon.txt'))


def found(find, text):
  return [text[a:b] for a, b in find(text)]


@mutation('sorted(sizes, reverse=True)', 'sorted(sizes)')
def test_the_longest_entry_from_the_left_wins(tmp_path):
  find = lexicon(tmp_path, '北京', '北京大学\t17', '大学生', '学', '京大').find
  assert found(find, '在北京大学生活，北京学') == ['北京大学', '北京']
  assert found(find, '北') == found(find, '') == []


@mutation(' and _between_words(text, end)', '')
def test_entries_of_scripts_with_spaces_end_between_words(tmp_path):
  find = lexicon(tmp_path, 'New York', 'New York City', 'York', 'ab', 'U.S.').find
  assert found(find, 'New York City, New Yorkers, Yorkshire, York.') == ['New York City', 'York']
  assert found(find, 'abc cab ab中 the U.S. law') == ['ab', 'U.S.']
  assert found(find, 'new york') == []


def test_a_lexicon_that_is_no_text_is_named_with_what_mends_it(tmp_path):
  (tmp_path / 'bad.txt').write_bytes(b'New York\nM\xfcnchen\n')
  with pytest.raises(ValueError, match='bad.txt, line 2: not UTF-8 at byte 1 .*Mend it, or conv'):
    phrases.Lexicon(str(tmp_path / 'bad.txt'))


def test_lexicons_may_be_compressed_and_several(tmp_path):
  (tmp_path / 'a.txt.xz').write_bytes(lzma.compress('上海\t3\n'.encode()))
  (tmp_path / 'b.txt').write_text('南京\n\n')
  find = phrases.finder(f'{tmp_path}/a.txt.xz,{tmp_path}/b.txt', '')
  assert found(find, '上海南京') == ['上海', '南京']
  assert phrases.finder('', '') is None


def pieces(text):
  return [text[:2], ' ', text[3:5]]


def pairs(text):
  return [(1, 3), (3, 4)]


def wrong(text):
  return [text[2:4], text[:2]]


def test_segmenters_return_pieces_or_pairs():
  here = __name__
  assert phrases.finder('', f'{here}:pieces')('ab cdef') == [(0, 2), (3, 5)]
  assert phrases.finder('', f'{here}:pairs')('ab cdef') == [(1, 3), (3, 4)]
  with pytest.raises(ValueError, match=f'{here}:wrong returned .ab. for .*in order'):
    phrases.finder('', f'{here}:wrong')('ab cd')


def test_mistakes_are_named(tmp_path):
  with pytest.raises(ValueError, match='no file matches'):
    phrases.finder(f'{tmp_path}/none.txt', '')
  with pytest.raises(ValueError, match='expected entries of two characters or more'):
    lexicon(tmp_path, 'a', '\t3')
  with pytest.raises(ValueError, match='got both: a and capitals'):
    phrases.finder('a', 'capitals')
  for name in ('nowhere', 'nowhere:f', 'math:nothing'):
    with pytest.raises(ValueError, match=f'--segmenter={name}: expected capitals, or MODULE'):
      phrases.finder('', name)


def wordpiece(tmp_path):
  words = 'the new york city er ##er ##s x 中 文 , .'.split()
  (tmp_path / 'vocab.txt').write_text('\n'.join(['[PAD]', '[UNK]', '[CLS]', '[SEP]', *words]))
  return load_vocabulary(tmp_path / 'vocab.txt', lowercase=True)


def units(vocabulary, texts, find):
  flat = vocabulary.encode_spans(texts)
  plain = vocabulary.encode_flat(texts)
  np.testing.assert_array_equal(flat[0], plain[0])
  np.testing.assert_array_equal(flat[1], plain[1])
  unit_n = phrases.unit_starts(flat, texts, map(find, texts), vocabulary.word_starts)
  return [part.tolist() for part in np.split(unit_n, np.cumsum(flat[1])[:-1])]


@mutation('where(span_n == before_n, CONTINUES, FOUND)', 'where(before_n > 0, CONTINUES, FOUND)')
def test_units_reach_the_tokens(tmp_path):
  find = lexicon(tmp_path, 'New York', 'Newer', '中文').find
  texts = ['The New York, newers 中文中', '', 'New York New York', '中文', 'ers Newer']
  got = units(wordpiece(tmp_path), texts, find)
  assert got[0] == [1, 2, 0, 1, 1, 0, 0, 2, 0, 1]
  assert got[1:] == [[], [2, 0, 2, 0], [2, 0], [1, 0, 2, 0]]


@mutation('word_starts[token_n] | first_n | (before_n > 0)', 'word_starts[token_n] | first_n')
def test_what_follows_a_unit_inside_a_word_begins_anew(tmp_path):
  find = lambda text: [(0, 3)]  # of 'newers': new, then ##er ##s
  assert units(wordpiece(tmp_path), ['newers x'], find) == [[2, 1, 0, 1]]


def test_units_of_byte_level_bpe(shared):
  vocabulary = published.vocabulary(shared, 'roberta')
  text = 'in New York, the Zürichberg 中国人'
  find = lambda text: [(3, 11), (17, 27), (28, 30)]
  flat = vocabulary.encode_spans([text])
  [got] = units(vocabulary, [text], find)
  begin_n, end_n = flat[2:]
  for start, stop in find(text):
    inside = [u for u, a, b in zip(got, begin_n, end_n, strict=True) if a < stop and b > start]
    assert inside[0] == 2 and not any(inside[1:]) and len(inside) > 1
  behind = [u for u, a in zip(got, begin_n, strict=True) if a >= 30]
  assert behind[0] == 1
