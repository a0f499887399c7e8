"""fastai's rules for texts, each alone and together, and its words where spaCy is there."""

import json
import os
import subprocess
import sys

import processes
import pytest
from mutation import mutation

from bertjax.errors import UserError
from bertjax.text import fastai


@pytest.fixture(scope='module')
def golden(shared):
  return json.loads((shared / 'golden' / 'family' / 'ulmfit_text.json').read_text())


@mutation("('...', ' …'),", "('...', '…'),")
@mutation("1{2,}', lambda m: f' xxrep {len(m[0])}", "1{2,}', lambda m: f' xxrep {len(m[0]) - 1}")
@mutation('if len(m[2]) > 1 else', 'if m[2] else')
def test_each_rule_and_all_of_them_write_what_fastai_writes(golden):
  texts = [line['text'] for line in golden['lines']]
  assert golden['rules2'] == [*fastai.RULES]
  for name, found in golden['each'].items():
    begin = 'xxbos ' if name == 'lowercase' else ''
    assert [begin + fastai.RULES[name](text) for text in texts[: len(found)]] == found, name
  for line in golden['lines']:
    assert f'xxbos {fastai.cleaned(line["text"])}' == line['rules2']


@mutation('cut.add_special_case(mark, [dict(ORTH=mark)])', 'pass')
def test_words_are_those_of_fastai(golden):
  pytest.importorskip('spacy')
  lines = golden['lines']
  for line, found in zip(lines, fastai.words(line['text'] for line in lines), strict=True):
    assert found == [word for word in line['tokens2'][1:] if word.strip(' \n\t▁')]
  for line, found in zip(lines, fastai.words((x['text'] for x in lines), True), strict=True):
    assert found == [word for word in line['tokens1'] if word.strip()]


@mutation("(' @,@ ', ','), ", '')
@mutation(r"r'(\S)\1{3,}'", r"r'(\S)\1{2,}'")
@mutation('len(m[2].split()) + 1} {m[1]}', 'len(m[2].split()) + 2} {m[1]}')
@mutation('if word.isupper() and len(word) > 1:', 'if word.isupper():')
def test_the_rules_of_the_first_version_on_the_words_that_fastai_had_cut(golden):
  for line in golden['lines']:
    text = ''.join(fastai.cleaned(line['text'], fastai.RULES_1).split())
    wanted, found = [word for word in line['tokens1'] if word.strip()], []
    for word in wanted:
      if text.lower().startswith(word):  # else it is a mark
        found.append(text[: len(word)])
        text = text[len(word) :]
    assert not text and [*fastai.marked(found)] == wanted


SPACY = """
class blank:
  def __init__(self, language): self.tokenizer = self
  def add_special_case(self, mark, parts): pass
  def __call__(self, text): return [Word(word) for word in text.split()]
class Word:
  is_space = False
  def __init__(self, text): self.text = text
"""


@mutation("sys.argv[1:] not in ([], ['--version=1'])", 'False')
@mutation('except UnicodeDecodeError', 'except RuntimeError', file='bertjax/text/fastai.py')
@mutation("open(0, encoding='utf-8', closefd=False)", 'sys.stdin')
def test_the_command_reads_utf_8_and_takes_no_arguments(tmp_path):
  (tmp_path / 'spacy').mkdir()
  (tmp_path / 'spacy/__init__.py').write_text(SPACY)
  (tmp_path / 'spacy/symbols.py').write_text('ORTH = 1')
  env = processes.environment()
  env = dict(env, PYTHONPATH=f'{tmp_path}{os.pathsep}{env["PYTHONPATH"]}')
  for arguments, given, code, out, said in (
    ([], 'The é\n', 0, 'xxmaj the é\n', ''),
    (['--version=1'], 'The I\n', 0, 'xxmaj the i\n', ''),
    (['text.txt'], '', 1, '', 'or nothing, the text is read: < TEXT > WORDS; got text'),
    ([], b'\xe9\n', 1, '', "expected a text in UTF-8: 'utf-8' codec can't decode byte 0xe9"),
    (['--help'], '', 0, fastai.__doc__, ''),
  ):
    given = given if isinstance(given, bytes) else given.encode()
    command = [sys.executable, '-m', 'bertjax.text.fastai', *arguments]
    done = subprocess.run(command, input=given, capture_output=True, env=env, check=False)
    assert done.returncode == code and done.stdout.decode().strip() == out.strip(), done.stderr
    assert said in done.stderr.decode() and b'Traceback' not in done.stderr


def test_words_without_spacy_are_refused_with_the_remedy(monkeypatch):
  monkeypatch.setitem(sys.modules, 'spacy', None)
  with pytest.raises(UserError, match='pip install spacy'):
    next(fastai.words(['a']))
