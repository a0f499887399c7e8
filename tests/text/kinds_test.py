"""What a file is, and that nothing is taken for text silently."""

import gzip

import pytest
from mutation import mutation

from bertjax.text import kinds

TEXT = 'The cat sat on a mat, and saw it.\nDogs run, far away, over hills.\nNo more.\n'


@pytest.mark.parametrize(
  ('name', 'kind'),
  [
    ('a.txt', 'text'), ('a.TXT.gz', 'text'), ('a.b.jsonl.zst', 'JSON lines'),
    ('a.json', 'JSON lines'), ('a.csv.bz2', 'CSV'), ('a.tsv.xz', 'TSV'), ('a.parquet', 'Parquet'),
    ('wiki_07', 'text'), ('wiki_07.bz2', 'text'), ('a.md', None), ('a', None), ('a.gz', None),
  ],
)  # fmt: skip
def test_names_say_the_kind(tmp_path, name, kind):
  assert kinds.kind_of(tmp_path / name) == kind


@pytest.mark.parametrize(
  'name, encoding',
  [
    *(('a.txt', encoding) for encoding in ('utf-16', 'utf-16-le', 'utf-16-be', 'utf-32')),
    *((name, 'utf-16-le') for name in ('a.jsonl', 'a.csv', 'a.de', 'a.txt.gz')),
  ],
)
def test_utf16_is_refused_by_name(tmp_path, encoding, name):
  data = TEXT.encode(encoding)
  (tmp_path / name).write_bytes(gzip.compress(data, mtime=0) if name.endswith('gz') else data)
  with pytest.raises(ValueError, match=f'{name} is UTF-.*expected UTF-8.*iconv -f UTF-'):
    kinds.check(tmp_path / name)


@pytest.mark.parametrize('name', ['a.txt', 'a.csv', 'a.de'])
def test_lines_that_end_with_cr_alone(tmp_path, name):
  (tmp_path / name).write_bytes(TEXT.replace('\n', '\r').encode())
  with pytest.raises(ValueError, match=f'{name} ends its lines with CR alone.*tr '):
    kinds.check(tmp_path / name, lines=True)
  (tmp_path / name).write_bytes(TEXT.replace('\n', '\r\n').encode())
  kinds.check(tmp_path / name, lines=True)


@pytest.mark.parametrize(
  ('data', 'message'),
  [
    (b'id,text\n1,The cat.\n2,A dog.\n', r'looks like CSV.*\.csv, or with \.txt'),
    (b'id\ttext\n1\tThe, cat.\n2\tA dog.\n', r'looks like TSV.*\.tsv'),
    (b'id,text\n' + b'1,"Lines\n, of one, text."\n' * 3 + b'4,"cut\n', r'looks like CSV'),
    (b'{"text": "x"}\n', r'looks like JSON.*\.jsonl'),
    (b' [\n {"text": "x"}]\n', 'looks like JSON'),
    (b'PK\x03\x04aaaa', 'is a zip archive'),
    (bytes(1001), 'is UTF-16 or UTF-32 without a mark'),
    (b'%PDF-1.4\n', 'is a PDF'),
    (b'PAR1xxxx', r'is Parquet: .*\.parquet'),
    (gzip.compress(b'text', mtime=0), r'is compressed: .* ends with \.gz'),
    (b'some\x01bytes\x00here\x02', 'bytes that are no text .a NUL at byte 10'),
  ],
)
def test_what_an_unknown_name_may_hide(tmp_path, data, message):
  (tmp_path / 'a.dat').write_bytes(data)
  with pytest.raises(ValueError, match=f'a.dat.*{message}'):
    kinds.check(tmp_path / 'a.dat')


@pytest.mark.parametrize(
  'text', [TEXT, 'One, two.\n', '', 'Yes, I do.\nNo, I do.\nWell, no.\n', '[1] A note.\n\nIt.\n']
)
def test_prose_under_an_unknown_name_is_text(tmp_path, text):
  (tmp_path / 'a.en').write_text(text)
  assert kinds.check(tmp_path / 'a.en') == kinds.TEXT


@mutation('elif kind == TEXT and', 'elif kind == JSON and')
@mutation('@functools.cache\ndef warn_once', 'def warn_once')
def test_a_text_that_says_so_may_look_like_anything(tmp_path, caplog):
  (tmp_path / 'a.txt').write_text('id,text\n1,x\n2,y\n')
  (tmp_path / 'b.txt').write_text(TEXT)
  (tmp_path / 'c.txt').write_text('a,b\n1,x\n2,y\n')
  for _ in range(2):
    assert kinds.check(tmp_path / 'a.txt') == kinds.check(tmp_path / 'b.txt') == kinds.TEXT
  kinds.check(tmp_path / 'c.txt', lines=True)  # a side of parallel text
  (said,) = caplog.messages
  assert said.startswith(f'{tmp_path}/a.txt looks like CSV and is read as plain text')
  (tmp_path / 'a.parquet.gz').write_bytes(gzip.compress(b'PAR1', mtime=0))
  with pytest.raises(ValueError, match='Parquet is compressed inside'):
    kinds.check(tmp_path / 'a.parquet.gz')
