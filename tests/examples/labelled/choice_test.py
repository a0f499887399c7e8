"""Questions with choices as rows of parts."""

import numpy as np
import pytest
from letters import Letters
from mutation import mutation

from bertjax.errors import UserError
from bertjax.examples.labelled.choice import TASK, Options
from bertjax.examples.labelled.common.questions import Question

OPTIONS = Options('columns', 'text', 'ask', ('list',), 'right', 'index', 1)


LETTERS = Letters(dict(cls=1, sep=2, pad=0))


def encode(asked, length=16, **changes):
  found = [Question(f'f.jsonl, line {n}', *each) for n, each in enumerate(asked, 1)]
  return TASK.encode(found, Options(**{**vars(OPTIONS), **changes}), LETTERS, length)


@mutation('np.arange(1, count + 1, dtype=np.int32)', 'np.ones(count, dtype=np.int32)')
@mutation('right_G[right(question, options.answer)] = 1', 'right_G[0] = 1')
def test_each_choice_is_a_part_with_the_context():
  found = encode([('xy', 'q', ['a', 'bc'], 1), ('z', '', ['d', 'e'], '0')])
  assert found.id_n[0].tolist() == [1, *b'xy', 2, *b'q a', 2, 1, *b'xy', 2, *b'q bc', 2]
  assert found.part_n[0].tolist() == [1] * 8 + [2] * 9
  assert found.type_n[0].tolist() == [0] * 4 + [1] * 4 + [0] * 4 + [1] * 5
  assert found.id_n[1].tolist() == [1, *b'z', 2, *b'd', 2, 1, *b'z', 2, *b'e', 2]
  assert found.label['right'].tolist() == [[0, 1], [1, 0]]
  assert found.label['right'].dtype == np.float32 and found.cut == 0
  assert TASK.classes(OPTIONS) == dict(right=1)


def test_each_part_is_cut_by_itself():
  found = encode([('x' * 20, '', ['a', 'bcd'], 0), ('x', '', ['a', 'b'], 0)], length=10)
  assert np.bincount(found.part_n[0]).tolist() == [0, 10, 10] and found.cut == 1
  assert found.id_n[0][10:].tolist() == [1, *b'xxxx', 2, *b'bcd', 2]


@pytest.mark.parametrize(
  ('answer', 'right', 'number'), [('index', 1, 1), ('letter', 'A', 0), ('text', 'b', 1)]
)
def test_the_right_one_is_named_in_three_ways(answer, right, number):
  found = encode([('x', '', ['a', 'b'], right)], answer=answer)
  assert found.label['right'][0].argmax() == number


@pytest.mark.parametrize(
  ('asked', 'changes', 'said'),
  [
    (
      [('x', '', ['a', 'b'], 0), ('x', '', ['a', 'b', 'c'], 0)],
      {},
      'line 2: expected 2 choices, as the first question has, got 3',
    ),
    ([('x', '', ['a', 'b'], 2)], {}, "line 1: expected the index of .* '0', '1', got 2"),
    ([('x', '', ['a', 'b'], 'C')], dict(answer='letter'), "one of 'A', 'B', got 'C'"),
    ([('x', '', ['a', 'a'], 'a')], dict(answer='text'), 'expected the text of the right choice'),
  ],
)
@mutation(
  'if names.count(str(said)) != 1:',
  'if str(said) not in names:',
  case='asked3-changes3-expected the text of the right choice',
)
def test_what_is_wrong_is_named_by_its_line(asked, changes, said):
  with pytest.raises(UserError, match=said):
    encode(asked, **changes)
