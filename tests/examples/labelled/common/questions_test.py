"""Files of questions with choices."""

import json

import pytest
from mutation import mutation

from bertjax.errors import UserError
from bertjax.examples.labelled.common import questions
from bertjax.examples.labelled.common.questions import Question

ONE = ('text', 'ask', ('list',), 'right')


def read(path, text, form='columns', where=ONE):
  path.write_text(text, encoding='utf-8')
  return list(questions.read(str(path), form, *where))


@mutation('[value(name) for name in choices]', '[value(name) for name in choices[:1]]')
def test_columns(tmp_path):
  record = dict(text='t', ask='q', list=['a', 'b'], right=1)
  place = f'{tmp_path}/a.jsonl, line 1'
  assert read(tmp_path / 'a.jsonl', json.dumps(record)) == [
    Question(place, 't', 'q', ['a', 'b'], 1)
  ]
  table = 'sent1,end0,end1,label\n"x, y",b,c,0\n'
  where = ('sent1', '', ('end0', 'end1'), 'label')
  (found,) = read(tmp_path / 'a.csv', table, where=where)
  assert found[1:] == ('x, y', '', ['b', 'c'], '0', '')
  (found,) = read(tmp_path / 'b.csv', 'sent1,end0,end1\nx,b,c\n', where=where[:3])
  assert found.choices == ['b', 'c']


def test_pairs_are_context_and_question_with_choice():
  asked = [Question('', 't', 'q', ['a', 'b'], 0), Question('', 'u', '', ['c', 'd'], 0)]
  assert questions.pairs(asked) == (['t', 't', 'u', 'u'], ['q a', 'q b', 'c', 'd'])
  cloze = [Question('', 't', 'Ada _ , _ .', ['a', 'b_'], 0, blank) for blank in ('', '_')]
  whole = ['Ada _ , _ . a', 'Ada _ , _ . b_', 'Ada a , a .', 'Ada b_ , b_ .']
  assert questions.pairs(cloze)[1] == whole


@mutation("right, blank='_')", 'right)')
@mutation(
  'enumerate(zip(questions, options, answers, strict=True), 1)',
  'enumerate([*zip(questions, options, answers, strict=True)][:1], 1)',
)
def test_race(tmp_path):
  record = dict(
    article='t', questions=['q', 'r _'], options=[list('abcd'), list('efgh')], answers=['B', 'D']
  )
  first, second = read(tmp_path / 'a.jsonl', json.dumps(record), 'race')
  assert first[1:] == ('t', 'q', list('abcd'), 'B', '_')
  assert second[1:] == ('t', 'r _', list('efgh'), 'D', '_')
  assert questions.pairs([second])[1] == ['r e', 'r f', 'r g', 'r h']
  assert second.place.endswith('line 1, question 2')


def test_dream(tmp_path):
  asked = [dict(question='q', choice=['a', 'b', 'c'], answer='c')]
  text = json.dumps([[['M: x', 'W: y'], asked, '4-1'], [['M: z'], asked, '4-2']], indent=1)
  first, second = read(tmp_path / 'a.json', text, 'dream')
  assert first[1:] == ('M: x W: y', 'q', ['a', 'b', 'c'], 'c', '') and second.context == 'M: z'
  assert second.place.endswith('dialogue 2, question 1')


@pytest.mark.parametrize(
  ('form', 'text', 'said'),
  [
    ('columns', '{"text": "t", "ask": "q", "list": ["a"], "right": 0}', 'two choices or more'),
    ('columns', '{"text": "t", "ask": "q", "list": "a", "right": 0}', "'list': expected a list"),
    ('columns', '{"text": 3, "ask": "q", "list": ["a", "b"], "right": 0}', 'expected strings'),
    ('columns', '{"text": "t", "list": ["a", "b"], "right": 0}', "expected 'ask' among them"),
    (
      'race',
      '{"article": "t", "questions": ["q"], "options": [["a", "b"]], "answers": []}',
      'line 1: expected as many options and answers as questions',
    ),
    ('dream', '[{"a": 1}]', 'expected an array of'),
    ('dream', '[[["x"], [{"question": "q", "choice": ["a", "b"]}], "1"]]', "KeyError.'answer'"),
    ('dream', '[[["x"]', 'expected an array of'),
  ],
)
def test_what_is_wrong_is_named(tmp_path, form, text, said):
  with pytest.raises(UserError, match=said):
    read(tmp_path / 'a.json', text, form)
