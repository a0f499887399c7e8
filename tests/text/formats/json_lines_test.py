"""JSON lines to documents: nested fields, and lines that are left out."""

import json

import pytest
from mutation import mutation

from bertjax.text.files import Files, find_sources
from bertjax.text.left_out import LeftOut

LINES = [
  {'text': 'plain', 'a': {'b': {'c': 'deep'}}, 'a.b': 'dotted'},
  {'text': 'two', 'a': {'b': {'c': 'deeper'}}, 'a.b': 'spotted'},
]


def read(path, field='text', skip=False, errors='strict'):
  files = Files(find_sources(str(path)), errors, field, left_out=LeftOut(skip))
  return list(files), files.left_out


def test_dots_lead_into_objects_and_a_field_of_that_name_comes_first(tmp_path):
  (tmp_path / 'a.ndjson').write_text('\n'.join(map(json.dumps, LINES)))
  for field, expected in (
    ('text', [b'plain', b'two']),
    ('a.b.c', [b'deep', b'deeper']),
    ('a.b', [b'dotted', b'spotted']),
  ):
    assert read(tmp_path / 'a.ndjson', field)[0] == expected
  for field in ('a.x', 'a.b.c.d', 'a'):
    with pytest.raises(ValueError, match=f"a.ndjson, line 1: .*string '{field}'.*--field, a.b.c"):
      read(tmp_path / 'a.ndjson', field)


@mutation(
  'json lines: a column that is null is called None',
  'bertjax/text/formats/__init__.py',
  'if value is None:',
  'if False:',
)
def test_a_column_that_is_null_has_no_value(tmp_path):
  (tmp_path / 'a.jsonl').write_text('{"text": "foo", "language": null}\n')
  sources = find_sources(str(tmp_path / 'a.jsonl'))
  assert list(Files(sources, 'strict', 'text', ('language',))) == [b'\x1ffoo']


def test_bad_lines_are_left_out_counted_and_named(tmp_path):
  bad = [b'{"text": 3}', b'{"text": "x"', b'{"text": "\xff"}', b'{"body": "x"}', b'{"t\0": 1}']
  good = b'{"text": "good"}'
  (tmp_path / 'a.jsonl').write_bytes(b'\n'.join([good, *bad, b'', b'[]', good, b'"text"', good]))
  documents, left_out = read(tmp_path / 'a.jsonl', skip=True)
  assert documents == [b'good'] * 3 and left_out.count == 7
  places = [name.split(': ')[0].rsplit('/', 1)[1] for name in left_out.named]
  assert places == [f'a.jsonl, line {number}' for number in range(2, 7)]
  with pytest.raises(ValueError, match='a.jsonl, line 2: .*, or pass --skip_bad to leave it out'):
    read(tmp_path / 'a.jsonl')


def test_one_value_over_many_lines_is_told_apart(tmp_path):
  (tmp_path / 'a.json').write_text(json.dumps([dict(text='x')], indent=1))
  with pytest.raises(ValueError, match='a.json, line 1: .*make lines of it, e.g. with jq -c'):
    read(tmp_path / 'a.json')
