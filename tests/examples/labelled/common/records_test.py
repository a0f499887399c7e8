"""Tables by their columns, whatever they are written in."""

import csv
import gzip
import io
import json

import pytest
from mutation import mutation

from bertjax.errors import UserError
from bertjax.examples.labelled.common import records

NAMES = ('id', 'text', 'label')
ROWS = [('1', 'a "b", c', 'good'), ('2', "d'e\u4e2d", 'bad'), ('3', '', 'good')]


def tsv(rows=ROWS):
  return '\n'.join('\t'.join(row) for row in (NAMES, *rows)) + '\n'


def csv_(rows=ROWS):
  out = io.StringIO()
  csv.writer(out).writerows([NAMES, *rows])
  return out.getvalue()


def jsonl(rows=ROWS):
  return ''.join(json.dumps(dict(zip(NAMES, row, strict=True))) + '\n\n' for row in rows)


FILES = {
  'a.tsv': tsv().encode(),
  'bom.tsv': b'\xef\xbb\xbf' + tsv().encode(),
  'crlf.tsv': tsv().replace('\n', '\r\n').encode(),
  'a.csv': csv_().encode(),
  'a.jsonl': jsonl().encode(),
  'a.tsv.gz': gzip.compress(tsv().encode()),
}


@pytest.mark.parametrize('name', FILES)
@mutation("split('\\t'))", "replace('\"', '').split('\\t'))", case='a.tsv')
def test_files_say_the_same(tmp_path, name):
  (tmp_path / name).write_bytes(FILES[name])
  found = list(records.read(str(tmp_path / name), ('text', 'label')))
  assert [tuple(r.values[n] for n in NAMES) for r in found] == ROWS
  assert all(f'{name}, line ' in r.place for r in found)


def test_a_table_without_a_header_is_given_one(tmp_path):
  (tmp_path / 'a.tsv').write_text('x\t1\ny\t2\n')
  found = list(records.read(str(tmp_path / 'a.tsv'), ('text',), ('text', 'label')))
  assert [r.values['text'] for r in found] == ['x', 'y'] and found[1].place.endswith('line 2')


COLA = ('source', 'label', 'mark', 'sentence')


@mutation('own = not header or {*columns} <= {*row}', 'own = not header')
def test_a_file_with_a_header_of_its_own_is_read_by_it(tmp_path):
  (tmp_path / 'train.tsv').write_text('gj04\t1\t\tKim sleeps.\nbc01\t0\t*\tSleeps Kim.\n')
  (tmp_path / 'test.tsv').write_text('index\tsentence\n0\tKim slept.\n1\tA sentence.\n')
  read = lambda name, columns: list(records.read(str(tmp_path / name), columns, COLA))
  assert [r.values['label'] for r in read('train.tsv', ('sentence', 'label'))] == ['1', '0']
  assert [r.values['sentence'] for r in read('train.tsv', ('sentence',))][0] == 'Kim sleeps.'
  found = read('test.tsv', ('sentence',))
  assert [dict(r.values) for r in found] == [
    dict(index='0', sentence='Kim slept.'), dict(index='1', sentence='A sentence.')
  ]  # fmt: skip
  with pytest.raises(UserError, match='line 1: expected 4 columns, got 2'):  # it has no label
    read('test.tsv', ('sentence', 'label'))


@mutation("remedy = '' if header is None else", "remedy = '' if True else")
def test_a_table_without_a_header_is_told_the_key(tmp_path):
  (tmp_path / 'a.tsv').write_text('x\t1\n')
  with pytest.raises(UserError, match="got 'x', '1'; without a header, .* config.data.task.header"):
    list(records.read(str(tmp_path / 'a.tsv'), ('text', 'label'), ()))


def test_a_given_header_without_the_column_is_refused(tmp_path):
  (tmp_path / 'a.tsv').write_text('x\t1\n')
  with pytest.raises(UserError, match="did you mean 'text'"):
    list(records.read(str(tmp_path / 'a.tsv'), ('txt',), ('text', 'label')))


WRONG = {
  'none.tsv': (None, 'there is no file'),
  'a.txt': (b'x\n', r'expected \.tsv, \.csv or \.jsonl, got text'),
  'near.tsv': (b'id\tttext\tlabel\n', "did you mean 'ttext'"),
  'short.tsv': (b'id\ttext\tlabel\n1\tx\n', 'line 2: expected 3 columns, got 2'),
  'open.csv': (b'id,text,label\n1,"x\n', 'line 2: expected CSV'),
  'semicolons.csv': (b'text;label\nx;1\n', "line 1: expected .* commas .*, got 'text;label'"),
  'torn.jsonl': (b'{"text": "x", "label"\n', 'line 1: expected a JSON object'),
  'list.jsonl': (b'[1]\n', 'line 1: expected a JSON object'),
  'half.jsonl': (b'{"text": "a \\ud83d", "label": 1}\n', r'line 1: .* \(half of a surrogate pair'),
  'lacks.jsonl': (b'{"text": "x"}\n', "columns of .*line 1.*'label'"),
  'twice.tsv': (b'id\ttext\ttext\tlabel\n', "line 1: the column 'text' is there twice"),
  'twice.jsonl': (b'{"text": "x", "text": "y", "label": 1}\n', 'a key is there twice'),
  'nul.csv': (b'id,text,label\n1,a\0b,x\n', 'line 2: a NUL byte'),
  'latin.tsv': (b'id\ttext\tlabel\n1\t\xe9\tx\n', 'line 2: not UTF-8 at byte 2'),
}


@pytest.mark.parametrize('name', WRONG)
@mutation("if b'\\0' in line:", 'if False:', file='bertjax/text/left_out.py', case='nul.csv')
def test_what_is_wrong_is_named(tmp_path, name):
  data, said = WRONG[name]
  if data is not None:
    (tmp_path / name).write_bytes(data)
  with pytest.raises(UserError, match=said):
    list(records.read(str(tmp_path / name), ('text', 'label')))


@mutation('json.dumps(value, ensure_ascii=False).encode()', 'json.dumps(value)')
@pytest.mark.parametrize('kind', [str, str.encode], ids=['text', 'bytes'])
def test_a_whole_surrogate_pair_is_a_character(kind):
  text = r'["\uD83D\ude00", "\u00e9"]'
  assert records.parsed(kind(text)) == ['\U0001f600', '\xe9']
  with pytest.raises(ValueError, match=r"half of a surrogate pair, .* at the end of .*a \\udc00'"):
    records.parsed(kind(text.replace(r'\ude00', 'a ').replace('\\uD83D', r'a \udc00')))


@pytest.mark.parametrize('name, data', [('a.csv', 'text\nx\n""\ny\n'), ('a.tsv', 'text\nx\n\ny\n')])
@mutation('len(names) != 1)', 'True)', case='a.csv-text\\nx\\n""\\ny\\n')
def test_an_empty_text_is_a_row_where_it_is_the_only_column(tmp_path, name, data):
  (tmp_path / name).write_text(data)
  found = [record.values['text'] for record in records.read(str(tmp_path / name), ('text',))]
  assert found == ['x', '', 'y']
