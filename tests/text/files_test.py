"""Files of text to documents."""

import lzma
import os

import pytest
from mutation import mutation

from bertjax.errors import UserError
from bertjax.text import left_out
from bertjax.text.files import Files, find_sources
from bertjax.text.formats import plain


def read(path, errors='strict', field='text'):
  return list(Files(find_sources(str(path)), errors, field))


@pytest.mark.parametrize(
  ('text', 'documents'),
  [
    ('\ufeffOne.\r\nTwo.\n \n\n\nÜ\u2028x\n', ['One.\r\nTwo.\n', 'Ü\u2028x\n']),
    # White space of any script is blank, as in create_pretraining_data.py, which strips decoded
    # lines; U+200B is none.
    ('a\n\u3000\nb\n\u00a0 \nc\n\u2003\u2009\nd\n\u1680\ne\n', ['a\n', 'b\n', 'c\n', 'd\n', 'e\n']),
    ('\u3000。\n\u205f\u3000\n\u200b\nE\n', ['\u3000。\n', '\u200b\nE\n']),
    ('<doc id="1" x>\nA\n\nB\n</doc>\n<doc id="2">\nC\n</doc>\n\nD\n', ['A\n\nB\n', 'C\n', 'D\n']),
    ('<doc id="1">\nA\n\nB\n', ['A\n\nB\n']),
    ('A\n</doc>\nB\n', ['A\n', 'B\n']),
    ('A', ['A']),
    ('A\n' + '\n' * 100_000 + 'B\n', ['A\n', 'B\n']),
  ],
  ids=['blank lines', 'white space', 'none', 'tags', 'open', 'closed', 'no line', 'many lines'],
)
@mutation("(rest[0] in b'\\xc2\\xe1\\xe2\\xe3' and not", '(False and not', case='white space')
def test_blank_lines_and_doc_tags_end_documents(tmp_path, text, documents):
  (tmp_path / 'a.txt').write_bytes(text.encode())
  assert [document.decode() for document in read(tmp_path / 'a.txt')] == documents


@pytest.mark.parametrize(
  'line, said',
  [
    (b'the cat \xe2\x82\n', 'not UTF-8 at byte 8'),  # cut within a letter
    (b'the \xed\xa0\x80 cat\n', 'not UTF-8 at byte 4'),  # half of a surrogate pair
    (b'the c\0at\n', 'a NUL byte'),
  ],
)
def test_a_line_that_is_no_text_is_named_or_left_out(tmp_path, line, said):
  (tmp_path / 'a.txt').write_bytes(b'one\n' + line)
  with pytest.raises(ValueError, match=f'a.txt, line 2: {said}'):
    read(tmp_path / 'a.txt')
  sources = find_sources(f'{tmp_path}/a.txt')
  found = Files(sources, 'strict', 'text', left_out=left_out.LeftOut(True))
  assert list(found) == [b'one\n'] and found.left_out.count == 1


def test_bytes_that_are_not_utf8_are_named_by_file_and_place(tmp_path):
  (tmp_path / 'a.txt').write_bytes('Ünï\n'.encode() + b'ab\xe9cd\n')
  with pytest.raises(ValueError, match='line 2: not UTF-8 at byte 2 .*0xe9.*--errors=replace'):
    read(tmp_path / 'a.txt')
  assert read(tmp_path / 'a.txt', errors='replace') == ['Ünï\n'.encode() + b'ab\xe9cd\n']
  (tmp_path / 'b.jsonl').write_bytes(b'{"text": "ab\xe9"}\n{"text": "\\ud83d\\ude00\\ud83d"}\n')
  assert read(tmp_path / 'b.jsonl', errors='replace') == [b'ab\xe9', '\U0001f600\ufffd'.encode()]


@pytest.mark.parametrize(
  ('line', 'message'),
  [
    (b'{"body": "x"}', "line 2: expected .* a string 'text'.*fields are 'body'.*--field"),
    (b'{"text": 3}', r'line 2: .*\(it is 3\)'),
    (b'["x"]', r"line 2: .*\(\['x'\] is no object\)"),
    (b'5', 'line 2: .*5 is no object'),
    (b'{"text": "x"', 'line 2'),
    (b'{"text": "x", "n": ' + b'9' * 5000 + b'}', 'line 2'),
    (b'{"text": "\\ud800"}', 'line 2: .* half of a surrogate pair.*--errors=replace'),
    (b'{"text": "x", "deep": ' + b'[' * 100_000, 'line 2'),
  ],
  ids=lambda value: str(value)[:30],
)
@mutation(
  'whole = isinstance(value, dict) and', 'whole =', case="b'5'-line 2: .*5 is no object",
  file='bertjax/text/formats/records.py',
)  # fmt: skip
def test_json_line_without_its_text_is_named(tmp_path, line, message):
  (tmp_path / 'a.jsonl').write_bytes(b'{"text": "x"}\n' + line + b'\n')
  with pytest.raises(ValueError, match=message):
    read(tmp_path / 'a.jsonl')


def test_memory_is_bounded_by_the_longest_document(tmp_path, monkeypatch):
  monkeypatch.setattr(left_out, 'MAX_DOCUMENT', 100)
  (tmp_path / 'a.txt').write_bytes(b'0123456789\n' * 30)
  documents = read(tmp_path / 'a.txt')
  assert max(map(len, documents)) <= 100 and b''.join(documents) == b'0123456789\n' * 30
  (tmp_path / 'b.txt').write_bytes(b'x' * 1000)
  with pytest.raises(ValueError, match='b.txt, line 1: longer than 100'):
    read(tmp_path / 'b.txt')


@mutation('size <= (_LONG if divided else min(max(_BLOCK, total // 100), _LONG))', 'size <= _LONG')
@mutation('divided = divided or ended', 'divided = divided or False')
@mutation('_LONG if divided else min(', 'size if divided else min(')
def test_text_that_nothing_divides_comes_in_blocks(tmp_path, caplog):
  """A hundred or so, which an empty line at the end does not change, and one anywhere else does,
  where the rest is no longer than a document may be."""
  lines = b''.join(b'sentence %d\n' % n for n in range(10_000))
  for number, end in enumerate((b'', b'\n\n')):
    path = tmp_path / f'{number}.txt'
    path.write_bytes(lines + end)
    found = read(path)
    assert b''.join(found) == lines and 90 < len(found) <= 100
    assert all(part.endswith(b'\n') for part in found)
    assert caplog.text.count(f'{path.name}: no empty line ends a document') == 1
    assert 'lines are all kept' in caplog.text and 'put an empty line between' in caplog.text
  (tmp_path / 'e.txt.xz').write_bytes(lzma.compress(lines))
  assert 90 < len(read(tmp_path / 'e.txt.xz')) <= 100  # whatever it takes on the disk
  (tmp_path / 'c.txt').write_bytes(lines + b'\nmore\n')
  assert read(tmp_path / 'c.txt') == [lines, b'more\n']
  (tmp_path / 'd.txt').write_bytes(b'more\n\n' + 10 * lines)
  first, *rest = read(tmp_path / 'd.txt')
  assert first == b'more\n' and b''.join(rest) == 10 * lines and 90 < len(rest) <= 100


@mutation('yield from blocks(parts, max(size, total))', 'yield from blocks(parts, size)')
@mutation('max(_BLOCK, total // 100)', '_BLOCK')
def test_of_many_files_without_empty_lines_each_is_a_document_or_few(tmp_path, monkeypatch):
  monkeypatch.setattr(plain, '_BLOCK', 2**12)
  lines = b''.join(b'sentence %d\n' % n for n in range(400))  # 5.1 KB
  for number in range(101):
    (tmp_path / f'{number:03}.txt').write_bytes(lines)
  assert read(tmp_path) == [lines] * 101
  for number in range(50, 101):
    (tmp_path / f'{number:03}.txt').unlink()
  found = read(tmp_path)  # blocks of 2.5 KB
  assert b''.join(found) == lines * 50 and 100 <= len(found) <= 150


@mutation('      str(path).encode()\n', '      pass\n')
def test_a_name_that_is_not_utf8_is_named(tmp_path):
  (tmp_path / os.fsdecode(b'\xff.txt')).write_text('x')
  with pytest.raises(ValueError, match=r'\\xff.txt. is not UTF-8.*rename it'):
    find_sources(str(tmp_path))


@mutation("    require_file(path, 'text')\n", '    pass\n')
@mutation('if not path.is_dir())', 'if path.is_file())')
@pytest.mark.parametrize('pattern', ['', '*.txt', 'b.txt'])
def test_a_link_that_leads_nowhere_is_named(tmp_path, pattern):
  (tmp_path / 'a.txt').write_text('x')
  (tmp_path / '.#a.txt').symlink_to('me@here:1')  # an editor's, left out
  (tmp_path / 'b.txt').symlink_to('none.txt')
  with pytest.raises(UserError, match='b.txt is a link to none.txt, which leads to no file: mend'):
    find_sources(str(tmp_path / pattern))


@mutation('if number == 0 and documents_lib.ROLE in', 'if False and documents_lib.ROLE in')
def test_a_file_without_the_roles_that_are_asked_for_is_named(tmp_path, caplog):
  (tmp_path / 'a.jsonl').write_text('{"text": "x", "role": 1}\n{"text": "y"}\n')
  (tmp_path / 'b.jsonl').write_text('{"text": "x", "speaker": 1}\n')
  found = list(Files(find_sources(str(tmp_path)), 'strict', 'text', ('role',)))
  assert found == [b'1\x1fx', b'\x1fy', b'\x1fx']
  assert 'a.jsonl' not in caplog.text
  assert caplog.text.count("b.jsonl: the first document has no field 'role'") == 1
