"""Files of tagged words."""

import gzip
import json

import pytest
from mutation import mutation

from bertjax.errors import UserError
from bertjax.examples.labelled.common import tagged

WHERE = (('tokens', 'tags'), (1, -1), ' ')


def read(path, text, where=WHERE):
  path.write_bytes(text.encode())
  return [(s.words, s.tags) for s in tagged.read(str(path), *where)]


@mutation(
  'if not line.strip():',
  "if not line.rstrip('\\r\\n'):",
  file='bertjax/examples/labelled/common/tagged.py',
)
@mutation("if conllu and line.startswith('#'):", "if line.startswith('#'):")
@mutation("line.split('\\t') if '\\t' in line else _BLANKS.split(line.strip(' '))", 'line.split()')
def test_columns(tmp_path):
  found = read(
    tmp_path / 'a.conll',
    '-DOCSTART- -X- O\n\n#tag\tO\nNew York\tB-LOC\r\n\t\n \t \n\n\tO\n \tO\nb\u2028c\tO',
  )
  assert found == [
    (['#tag', 'New York'], ['O', 'B-LOC']), (['', ' ', 'b\u2028c'], ['O', 'O', 'O']),
  ]  # fmt: skip
  assert read(tmp_path / 'b.txt', 'U.N.  NNP   I-ORG\na DT O \n') == [
    (['U.N.', 'a'], ['I-ORG', 'O'])
  ]
  middle = (WHERE[0], (1, 2), ' ')
  assert read(tmp_path / 'c.txt', 'a DT O\n', middle) == [(['a'], ['DT'])]
  words = (('tokens',), (1,), ' ')
  assert read(tmp_path / 'd.conll', 'a\nb\n\nc\n', words) == [(['a', 'b'], []), (['c'], [])]


@mutation(
  "line = '' if line.lstrip().startswith('-DOCSTART-') else line",
  "if line.lstrip().startswith('-DOCSTART-'):\n      continue",
)
@pytest.mark.parametrize('document', ['-DOCSTART-', '-DOCSTART- -X- -X- O', '-DOCSTART-\t\tO'])
@pytest.mark.parametrize('end', ['\n', '\r\n'])
@pytest.mark.parametrize('name', ['a.conll', 'a.txt', 'a.conllu'])
def test_a_document_ends_a_sentence(tmp_path, document, end, name):
  a, b, c = ('1\ta\tO', '1\tb\tO'), ('1\tc\tO',), ('1\td\tO',)
  where, lines = (WHERE[0], (2, 3), ' '), [document, *a, document, *b, document, '', *c]
  want = [(['a', 'b'], ['O', 'O']), (['c'], ['O']), (['d'], ['O'])]
  for each in (lines, [*lines, document], ['\ufeff' + lines[0], *lines[1:], '', document, '']):
    assert read(tmp_path / name, end.join(each), where) == want
    assert read(tmp_path / name, end.join([*each, '']), where) == want


@mutation('if conllu and not fields[0].isdecimal():', "if conllu and '.' in fields[0]:")
def test_conllu(tmp_path):
  text = (
    '# text = vámonos al mar\n1-2\tvámonos\t_\t_\n1\tvamos\tir\tVERB\n2\tnos\tnosotros\tPRON\n'
    '2.1\tomitted\tomitted\tVERB\n3-4\tal\t_\t_\n3\ta\ta\tADP\n4\tel\tel\tDET\n5\tmar\tmar\tNOUN\n\n'
  )
  where = (WHERE[0], (2, 4), ' ')
  want = [(['vamos', 'nos', 'a', 'el', 'mar'], ['VERB', 'PRON', 'ADP', 'DET', 'NOUN'])]
  assert read(tmp_path / 'a.conllu', text, where) == want
  (tmp_path / 'b.conllu.gz').write_bytes(gzip.compress(text.encode()))
  found = list(tagged.read(str(tmp_path / 'b.conllu.gz'), *where))
  assert [(s.words, s.tags) for s in found] == want and found[0].at(2).endswith('line 7')


@mutation('return value.split(separator)', 'return [value]')
def test_tables_and_json_lines(tmp_path):
  record = dict(tokens=['a', 'b c'], tags=['O', 'B-X'])
  want = [(['a', 'b c'], ['O', 'B-X'])]
  assert read(tmp_path / 'a.jsonl', json.dumps(record)) == want
  where = (('text', 'label'), (1, -1), '\x02')
  assert read(tmp_path / 'a.tsv', 'text\tlabel\na\x02b c\tO\x02B-X\n', where) == want


@pytest.mark.parametrize(
  ('name', 'text', 'said'),
  [
    ('a.conll', 'a O\n\nb\n', r'line 3: expected words and tags in the columns \(1, -1\)'),
    ('b.conll', '#text\n', 'known in .conllu files alone'),
    ('c.jsonl', '{"tokens": ["a"], "tags": []}', 'line 1: expected words and as many tags, got 1'),
    ('d.jsonl', '{"tokens": [], "tags": []}', "words in 'tokens', got none: leave the line out"),
    ('e.jsonl', '{"tokens": ["a"], "tags": [0]}', r"list of strings in 'tags', got \[0\]"),
    ('f.jsonl', '{"words": ["a"], "tags": ["O"]}', "expected 'tokens' among them, got 'words'"),
  ],
)  # fmt: skip
def test_what_is_wrong_is_named_by_its_line(tmp_path, name, text, said):
  with pytest.raises(UserError, match=said):
    read(tmp_path / name, text)
