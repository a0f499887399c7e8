"""JSON lines, CSV, TSV, Parquet and parallel text to documents, and what is left out of them."""

import csv
import json
import lzma
import sys

import numpy as np
import pyarrow
import pytest
from mutation import mutation
from pyarrow import parquet

from bertjax.text import left_out as left_out_lib
from bertjax.text.files import Files, find_sources
from bertjax.text.left_out import LeftOut


def read(path, field='text', skip=False, errors='strict', columns=()):
  files = Files(find_sources(str(path)), errors, field, columns, left_out=LeftOut(skip))
  return list(files), files.left_out


def a_parquet(path, rows=10, **kinds):
  texts = [f'document {i}, ü\nline two' for i in range(rows)]
  table = dict(
    text=pyarrow.array(texts, **kinds), language=['en', 'de'] * (rows // 2), role=[[0, 1]] * rows,
    n=np.arange(rows), meta=[dict(inner=dict(body=text.upper())) for text in texts],
  )  # fmt: skip
  parquet.write_table(pyarrow.table(table), path, row_group_size=700, compression='zstd')
  return [text.encode() for text in texts]


GOOD = b'{"text": "good"}'
BAD = [b'{"text": 3}', b'{"text": "x"', b'{"text": "\xff"}', b'{"body": "x"}', b'{"t\0": 1}']
LEFT_OUT = {  # file -> its lines, the documents, how many are left out, and the first of these
  'a.jsonl': (
    [GOOD, *BAD, b'', b'[]', GOOD, b'"text"', GOOD], [b'good'] * 3, 7,
    ['line 2', 'line 3', 'line 4', 'line 5', 'line 6'],
  ),
  'a.csv': (
    [b'text,id', b'one,1', b'"a"b,2', b'three', b'f\xe9,4', b'"two\nlines",5', b'x\0,6', b'e,7'],
    [b'one', b'two\nlines', b'e'], 4,
    ['line 3: no CSV', 'line 4: 1 field, but 2 columns', 'line 5: not UTF-8', 'line 8'],
  ),
  'a.parquet': (
    [b'one', None, b'\xff', b'nul\0', b'five'], [b'one', b'five'], 3,
    ['record 2: no text', 'record 3', 'record 4'],
  ),
}  # fmt: skip


@pytest.mark.parametrize('name', LEFT_OUT)
def test_bad_records_are_left_out_counted_and_named(tmp_path, name):
  lines, wanted, count, places = LEFT_OUT[name]
  if name.endswith('parquet'):
    texts = pyarrow.array(lines, pyarrow.binary())
    parquet.write_table(pyarrow.table(dict(text=texts)), tmp_path / name)
  else:
    (tmp_path / name).write_bytes(b'\n'.join(lines))
  documents, left_out = read(tmp_path / name, skip=True)
  assert documents == wanted and left_out.count == count and len(left_out.named) == len(places)
  for said, place in zip(left_out.named, places, strict=True):
    assert said.startswith(f'{tmp_path / name}, {place}')
  with pytest.raises(ValueError, match=f'{name}, {places[0]}.*, or pass --skip_bad'):
    read(tmp_path / name)


@pytest.mark.parametrize(
  'field, expected',
  [('text', [b'plain', b'two']), ('a.b.c', [b'deep', b'deeper']), ('a.b', [b'dotted', b'spotted'])],
)
def test_dots_lead_into_objects_and_a_field_of_that_name_comes_first(tmp_path, field, expected):
  first = {'text': 'plain', 'a': {'b': {'c': 'deep'}}, 'a.b': 'dotted'}
  second = {'text': 'two', 'a': {'b': {'c': 'deeper'}}, 'a.b': 'spotted'}
  (tmp_path / 'a.ndjson').write_text('\n'.join(map(json.dumps, (first, second))))
  assert read(tmp_path / 'a.ndjson', field)[0] == expected
  for field in ('a.x', 'a.b.c.d', 'a'):
    with pytest.raises(ValueError, match=f"a.ndjson, line 1: .*string '{field}'.*--field, a.b.c"):
      read(tmp_path / 'a.ndjson', field)


@mutation('if value is None:', 'if False:')
def test_a_column_that_is_null_has_no_value(tmp_path):
  (tmp_path / 'a.jsonl').write_text('{"text": "foo", "language": null}\n')
  assert read(tmp_path / 'a.jsonl', columns=('language',))[0] == [b'\x1ffoo']


def test_csv_is_read_as_it_is_written(tmp_path):
  texts = ['plain', 'with, a comma', 'a "quote"', 'two\nlines\r\nand more', 'ü\u2028x', ' ', 'end']
  with open(tmp_path / 'a.csv', 'w', newline='', encoding='utf-8-sig') as file:
    writer = csv.writer(file)
    writer.writerow(['id', 'text', 'language'])
    writer.writerows([i, text, 'de' if i % 2 else 'en'] for i, text in enumerate(texts))
  expected = [text.encode() for text in texts]
  assert read(tmp_path / 'a.csv')[0] == expected
  assert read(tmp_path / 'a.csv', 'id')[0] == [str(i).encode() for i in range(len(texts))]
  records, _ = read(tmp_path / 'a.csv', columns=('language', 'role'))
  assert records[:2] == [b'en\x1f\x1f' + expected[0], b'de\x1f\x1f' + expected[1]]
  (tmp_path / 'b.CSV.xz').write_bytes(lzma.compress(b'text,id\nf\xe9,4\n'))
  assert read(tmp_path / 'b.CSV.xz', errors='replace')[0] == [b'f\xe9']


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


def test_texts_columns_and_structs_of_parquet(tmp_path):
  texts = a_parquet(tmp_path / 'a.parquet', 2500)
  assert read(tmp_path / 'a.parquet')[0] == texts
  upper = [text.decode().upper().encode() for text in texts]
  assert read(tmp_path / 'a.parquet', 'meta.inner.body')[0] == upper
  records, _ = read(tmp_path / 'a.parquet', columns=('language', 'role'))
  assert records[:2] == [b'en\x1f0 1\x1f' + texts[0], b'de\x1f0 1\x1f' + texts[1]]


def test_mistakes_of_parquet_are_named(tmp_path, monkeypatch):
  a_parquet(tmp_path / 'a.parquet')
  with pytest.raises(ValueError, match="no column 'n' of strings; .* 'text', .*'meta.inner.body'"):
    read(tmp_path / 'a.parquet', 'n')
  (tmp_path / 'b.parquet').write_bytes((tmp_path / 'a.parquet').read_bytes()[:-20])
  with pytest.raises(ValueError, match='b.parquet is damaged or no Parquet'):
    read(tmp_path / 'b.parquet')
  monkeypatch.setitem(sys.modules, 'pyarrow', None)
  with pytest.raises(ValueError, match='a.parquet.*pip install pyarrow'):
    read(tmp_path / 'a.parquet')


@pytest.mark.parametrize(
  ('files', 'pairs', 'named'),
  [
    (
      {'a.en': b'one\ntwo\xff\nthree\nfour\n', 'a.de': b'eins\nzwei\ndrei\0\nvier\n'},
      [b'one\neins', b'four\nvier'], ['a.en, line 2: not UTF-8', 'a.de, line 3'],
    ),
    (
      {'a.tsv': b'one\teins\talso\ntwo\nthree\tdrei\n'},
      [b'one\neins', b'three\ndrei'], ['a.tsv, line 2: expected two columns'],
    ),
  ],
  ids=['two files', 'two columns'],
)  # fmt: skip
def test_a_bad_line_takes_its_translation_along(tmp_path, files, pairs, named):
  for name, data in files.items():
    (tmp_path / name).write_bytes(data)
  pattern = 'en-de=' + '+'.join(str(tmp_path / name) for name in files)
  records, left_out = read(pattern, skip=True, columns=('language',))
  assert [record.split(b'\x1f')[1] for record in records] == pairs
  for said, place in zip(left_out.named, named, strict=True):
    assert said.startswith(f'{tmp_path}/{place}')
  with pytest.raises(ValueError, match=named[0]):
    read(pattern)
