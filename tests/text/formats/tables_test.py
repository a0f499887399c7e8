"""CSV and TSV with a header to documents."""

import csv
import gzip
import lzma

import pytest

from bertjax.text import left_out as left_out_lib
from bertjax.text.files import Files, find_sources
from bertjax.text.left_out import LeftOut

TEXTS = ['plain', 'with, a comma', 'a "quote"', 'two\nlines\r\nand more', 'ü\u2028x', ' ', 'end']


def read(path, field='text', skip=False, errors='strict', columns=()):
  files = Files(find_sources(str(path)), errors, field, columns, left_out=LeftOut(skip))
  return list(files), files.left_out


def test_csv_is_read_as_it_is_written(tmp_path):
  with open(tmp_path / 'a.csv', 'w', newline='', encoding='utf-8-sig') as file:
    writer = csv.writer(file)
    writer.writerow(['id', 'text', 'language'])
    writer.writerows([i, text, 'de' if i % 2 else 'en'] for i, text in enumerate(TEXTS))
  expected = [text.encode() for text in TEXTS]
  assert read(tmp_path / 'a.csv')[0] == expected
  assert read(tmp_path / 'a.csv', 'id')[0] == [str(i).encode() for i in range(len(TEXTS))]
  records, _ = read(tmp_path / 'a.csv', columns=('language', 'role'))
  assert [r.split(b'\x1f') for r in records][:2] == [[b'en', b'', t] for t in expected[:1]] + [
    [b'de', b'', expected[1]]
  ]


def test_tsv_has_no_quotes(tmp_path):
  (tmp_path / 'a.tsv.gz').write_bytes(gzip.compress(b'text\tid\r\n"He said" so\t1\r\n\r\n"x\t2\n'))
  assert read(tmp_path / 'a.tsv.gz')[0] == [b'"He said" so', b'"x']
  assert read(tmp_path / 'a.tsv.gz', 'id')[0] == [b'1', b'2']


def test_bad_records_are_left_out_counted_and_named(tmp_path):
  rows = [
    b'text,id',
    b'one,1',
    b'"a"b,2',
    b'three',
    b'f\xe9,4',
    b'"two\nlines",5',
    b'x\0,6',
    b'e,7',
  ]
  (tmp_path / 'a.csv').write_bytes(b'\n'.join(rows))
  documents, left_out = read(tmp_path / 'a.csv', skip=True)
  assert documents == [b'one', b'two\nlines', b'e'] and left_out.count == 4
  named = [name.split('a.csv, ')[1] for name in left_out.named]
  assert [name.split(':')[0] for name in named] == ['line 3', 'line 4', 'line 5', 'line 8']
  assert 'no CSV' in named[0] and '1 fields, but 2 columns' in named[1] and '0xe9' in named[2]
  with pytest.raises(ValueError, match='a.csv, line 3: no CSV .*--skip_bad'):
    read(tmp_path / 'a.csv')
  (tmp_path / 'b.csv').write_bytes(b'text,id\nf\xe9,4\n')
  assert read(tmp_path / 'b.csv', errors='replace')[0] == [b'f\xe9']


def test_a_quote_without_end_is_named(tmp_path, monkeypatch):
  monkeypatch.setattr(left_out_lib, 'MAX_DOCUMENT', 1000)
  for lines in (5, 500):
    (tmp_path / 'a.csv').write_text('text\n"begins\n' + 'goes on\n' * lines)
    with pytest.raises(ValueError, match='a.csv, line 2: no CSV'):
      read(tmp_path / 'a.csv')


@pytest.mark.parametrize(
  ('header', 'message'),
  [
    ('id,body', "one column 'text', got 'id', 'body'. Name the column with --field"),
    ('id;text', 'not semicolons'),
    ('text,text', "one column 'text', got 'text', 'text'"),
    ('', 'got nothing'),
    ('"a"b', 'line 1: expected a header, got no CSV'),
  ],
)
def test_headers_without_the_column(tmp_path, header, message):
  (tmp_path / 'a.csv').write_text(header + '\n1,2\n')
  with pytest.raises(ValueError, match=message):
    read(tmp_path / 'a.csv', skip=True)


@pytest.mark.parametrize(
  ('name', 'field', 'rows'),
  [
    ('downstream/glue/SST-2/dev.tsv', 'sentence', 872),
    ('downstream/glue/WNLI/train.tsv', 'sentence2', 635),
    ('zh/tasks/chnsenticorp/train.tsv.gz', 'text_a', 9600),
    ('zh/tasks/xnli/test.tsv.gz', 'text_a', 5010),
  ],
)
def test_real_tables(shared, name, field, rows):
  documents, _ = read(shared / name, field)
  assert len(documents) == rows and all(documents)


def test_compressed_csv(tmp_path):
  (tmp_path / 'a.CSV.xz').write_bytes(lzma.compress(b'text\nx\n'))
  assert read(tmp_path / 'a.CSV.xz')[0] == [b'x']
