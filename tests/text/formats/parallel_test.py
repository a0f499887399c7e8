"""Parallel text: bad pairs are left out as a whole."""

import pytest

from bertjax.text.files import Files, find_sources
from bertjax.text.left_out import LeftOut


def read(pattern, skip=False, errors='strict'):
  files = Files(find_sources(pattern), errors, 'text', ('language',), left_out=LeftOut(skip))
  return [record.split(b'\x1f')[1] for record in files], files.left_out


def test_a_bad_line_takes_its_translation_along(tmp_path):
  (tmp_path / 'a.en').write_bytes(b'one\ntwo\xff\nthree\nfour\n')
  (tmp_path / 'a.de').write_bytes(b'eins\nzwei\ndrei\0\nvier\n')
  pattern = f'en-de={tmp_path}/a.en+{tmp_path}/a.de'
  pairs, left_out = read(pattern, skip=True)
  assert pairs == [b'one\neins', b'four\nvier'] and left_out.count == 2
  assert 'a.en, line 2' in left_out.named[0] and 'a.de, line 3' in left_out.named[1]
  with pytest.raises(ValueError, match='a.en, line 2: not UTF-8'):
    read(pattern)


def test_a_line_without_its_second_column(tmp_path):
  (tmp_path / 'a.tsv').write_bytes(b'one\teins\talso\ntwo\nthree\tdrei\n')
  pairs, left_out = read(f'en-de={tmp_path}/a.tsv', skip=True)
  assert pairs == [b'one\neins', b'three\ndrei'] and left_out.count == 1
  assert 'a.tsv, line 2: expected two columns' in left_out.named[0]
