"""fastai's rules for texts, each alone and together, and its words where spaCy is there."""

import json

import pytest
from mutation import mutation

from bertjax.errors import UserError
from bertjax.text import fastai


@pytest.fixture(scope='module')
def golden(shared):
  return json.loads((shared / 'golden' / 'family' / 'ulmfit_text.json').read_text())


@mutation("('...', ' …'),", "('...', '…'),")
@mutation('len(m[0])} {m[1]}', 'len(m[0]) - 1} {m[1]}')
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


def test_words_without_spacy_are_refused_with_the_remedy(monkeypatch):
  monkeypatch.setitem(__import__('sys').modules, 'spacy', None)
  with pytest.raises(UserError, match='pip install spacy'):
    next(fastai.words(['a']))
