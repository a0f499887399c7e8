"""Classes and numbers of records."""

import dataclasses

import numpy as np
import pytest
from letters import Letters
from mutation import mutation

from bertjax.errors import UserError
from bertjax.examples.labelled.classify import TASK, Options
from bertjax.examples.labelled.common.records import Record

OPTIONS = Options(('text',), 'label', ('bad', 'good'), (), 1, False, '')

NUMBERS = dataclasses.replace(OPTIONS, classes=())


LETTERS = Letters(dict(cls=1, sep=2, pad=0))


def encode(rows, options=OPTIONS):
  records = [Record(f'f.tsv, line {i}', row) for i, row in enumerate(rows, 2)]
  return TASK.encode(records, options, LETTERS, 16)


@mutation('return options.classes.index', 'return sorted(options.classes, reverse=True).index')
def test_classes_have_their_ids_and_numbers_are_numbers():
  found = encode([dict(text='ab', label='good'), dict(text='c', label='bad')])
  assert found.label['label'].tolist() == [1, 0] and found.label['label'].dtype == np.int32
  assert found.id_n[0].tolist() == [1, 97, 98, 2]
  numbers = encode([dict(text='a', label=3), dict(text='a', label='-.5')], NUMBERS)
  assert numbers.label['label'].tolist() == [3.0, -0.5]
  assert numbers.label['label'].dtype == np.float32


@pytest.mark.parametrize(
  ('row', 'classes', 'said'),
  [
    (
      dict(text='a', label='Good'),
      ('bad', 'good'),
      "line 2: expected one of 'bad', 'good'.*'Good'",
    ),
    (dict(text='a', label='x'), (), "line 2: expected a number in 'label', got 'x'"),
    (dict(text='a', label='nan'), (), 'expected a number'),
    (dict(text=3, label='good'), ('bad', 'good'), "line 2: expected a string in 'text', got 3"),
  ],
)
def test_what_is_wrong_is_named_by_its_line(row, classes, said):
  with pytest.raises(UserError, match=said):
    encode([row], dataclasses.replace(OPTIONS, classes=classes))


@mutation('  if options.unlabelled:\n', '  if options.label not in found[0].values:\n')
def test_without_labels_none_is_read_that_is_there():
  options = dataclasses.replace(OPTIONS, unlabelled=True)
  assert encode([dict(text='a'), dict(text='b')], options).label == {}
  assert encode([dict(text='a', label='-1'), dict(text='b')], options).label == {}


@pytest.mark.parametrize(
  ('text', 'classes'), [((), ('a', 'b')), (('a', 'b', 'c'), ('a', 'b')), (('a',), ('a',)),
  (('a',), ('a', 'a'))],
)  # fmt: skip
def test_what_cannot_be_learned_is_refused(text, classes):
  with pytest.raises(UserError, match=r'config\.data\.task'):
    TASK.check(dataclasses.replace(OPTIONS, text=text, classes=classes))


SOFT = dataclasses.replace(OPTIONS, soft_label='said')


@mutation('[said[name] for name in options.classes]', 'list(said.values())')
def test_soft_labels_are_log_probabilities_in_the_order_of_the_classes():
  rows = [dict(text='a', said=dict(good=0.75, bad=0.25)), dict(text='b', said=dict(bad=0, good=1))]
  options = dataclasses.replace(SOFT, unlabelled=True)
  found = encode(rows, options).label['soft_label']
  assert found.shape == (2, 1, 2) and found.dtype == np.float32
  np.testing.assert_allclose(np.exp(found[:, 0]), [[0.25, 0.75], [0, 1]])
  numbers = encode([dict(text='a', said=3.5)], dataclasses.replace(options, classes=()))
  assert numbers.label['soft_label'].tolist() == [[[3.5]]]
  assert encode([dict(text='a', label='bad')], SOFT).label.keys() == {'label'}


@pytest.mark.parametrize(
  'said', [dict(good=1.0), dict(good=0.5, bad=0.1), dict(good=1.5, bad=-0.5), 'good', 0.5]
)
def test_soft_labels_of_another_task_are_named_by_their_line(said):
  right = dict(text='a', label='bad', said=dict(good=0.5, bad=0.5))
  with pytest.raises(UserError, match="line 3: expected in 'said' the probability of each of"):
    encode([right, dict(right, said=said)], SOFT)
  with pytest.raises(UserError, match="line 3: expected 'said', which the lines before it have"):
    encode([right, dict(text='a', label='bad')], SOFT)
