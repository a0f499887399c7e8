"""Files in the form of SQuAD."""

import gzip
import json

import pytest
from mutation import mutation

from bertjax.errors import UserError
from bertjax.examples.labelled.common import squad_json


def question(name='q1', **more):
  given = dict(id=name, question='who?', answers=[dict(text='bob', answer_start=0)])
  return given | more


def file_of(tmp_path, *questions, context='bob sat'):
  path = tmp_path / 'a.json'
  paragraph = dict(context=context, qas=list(questions))
  path.write_text(json.dumps(dict(data=[dict(title='t', paragraphs=[paragraph])])))
  return path


@mutation("known = answers and not said.get('is_impossible', False)", 'known = answers')
def test_a_question_has_its_context_and_its_answers(tmp_path):
  path = file_of(
    tmp_path, question(), question('q2', answers=[]), question('q3', is_impossible=True)
  )
  packed = tmp_path / 'b.json.gz'
  packed.write_bytes(gzip.compress(path.read_bytes()))
  for each in (path, packed):
    first, second, third = squad_json.read(str(each))
    assert first.values == dict(
      id='q1', question='who?', context='bob sat', answers=(squad_json.Answer('bob', 0),)
    )
    assert second.values['answers'] == third.values['answers'] == ()
    assert first.place == f'{each}, question q1'


@pytest.mark.parametrize(
  ('questions', 'said'),
  [
    ([question(), question()], 'question q1 stands there twice'),
    ([dict(question='who?')], r"data\[0\], paragraphs\[0\], qas\[0\]: expected str or int as 'id'"),
    ([question(answers='bob')], "question q1: expected list as 'answers', got 'bob'"),
    ([question(answers=[dict(text='bob', answer_start='0')])], "int as 'answer_start', got '0'"),
    ([question(question=None)], "question q1: expected str as 'question', got 'None'"),
  ],
)
def test_other_forms_are_refused_with_their_place(tmp_path, questions, said):
  with pytest.raises(UserError, match=said):
    list(squad_json.read(str(file_of(tmp_path, *questions))))
