"""Scores on cases that can be counted by hand."""

import math
import types

import numpy as np
import pytest
from mutation import mutation

from bertjax.errors import UserError
from bertjax.evals import choice, classification
from bertjax.evals.held_out import labelled


def logits(found, classes=2):
  return 5.0 * np.eye(classes, dtype=np.float32)[np.array(found)]


@mutation('metrics.f1_score(label_n, found_n,', 'metrics.f1_score(1 - label_n, 1 - found_n,')
def test_scores_of_classes():
  label = np.array([1, 1, 1, 0, 0, 0, 0, 0])
  found = classification.judged(logits([1, 1, 0, 1, 0, 0, 0, 0]), label)  # tp 2, fp 1, fn 1, tn 4
  assert found['accuracy'] == 6 / 8 and found['majority'] == 5 / 8
  assert found['f1'] == pytest.approx(2 / 3)
  assert found['mcc'] == pytest.approx((2 * 4 - 1 * 1) / math.sqrt(3 * 3 * 5 * 5))
  wrong, right = math.log1p(math.exp(5.0)), math.log1p(math.exp(-5.0))
  assert found['loss'] == pytest.approx((2 * wrong + 6 * right) / 8)
  assert found.keys() == classification.names(2)
  assert classification.names(3) == classification.names(2) - {'f1'}


@mutation("('spearman', stats.spearmanr)", "('spearman', stats.pearsonr)")
def test_scores_of_numbers():
  label = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
  found = classification.judged(np.array([[1.0], [2.0], [3.0], [10.0]], np.float32), label)
  assert found['spearman'] == pytest.approx(1.0) and found['loss'] == 9.0
  assert found['pearson'] == pytest.approx(14 / math.sqrt(5 * 50))
  flat = classification.judged(np.ones((4, 1), np.float32), label)
  assert flat['pearson'] == flat['spearman'] == 0.0
  # Ties have the mean of their ranks: 1.5 1.5 3 4 and 1 2.5 2.5 4.
  tied = classification.judged(
    np.array([[1.0], [2.0], [2.0], [9.0]]), np.array([1.0, 1.0, 2.0, 7.0])
  )
  assert tied['spearman'] == pytest.approx(3.75 / 4.5)
  assert found.keys() == classification.names(1)


def subject(label, classes, best='eval/dev/accuracy'):
  """What is judged by `best`, with a head of so many classes."""
  model = types.SimpleNamespace(labels=((label, classes),))
  config = types.SimpleNamespace(
    model=model,
    phases={},
    data=types.SimpleNamespace(task={}),
    best=types.SimpleNamespace(metric=best),
  )
  objective = types.SimpleNamespace(predict=None)
  return types.SimpleNamespace(config=config, objective=objective, store=None)


@mutation(
  'CUT: float(rows.examples.cut)',
  'CUT: 0.0',
  file='bertjax/evals/held_out/labelled.py',
  case='choice',
)
@pytest.mark.parametrize(
  'module, name, label',
  [(classification, 'label', np.array([0, 1])), (choice, 'right', np.eye(2, dtype=np.float32))],
  ids=['classification', 'choice'],
)
def test_texts_that_were_cut_are_counted(monkeypatch, module, name, label):
  rows = types.SimpleNamespace(examples=types.SimpleNamespace(label={name: label}, cut=7))
  monkeypatch.setattr(labelled, 'file_of', lambda subject, options: ('', ''))
  monkeypatch.setattr(labelled.from_config, 'open_rows', lambda *given, judged: rows)
  monkeypatch.setattr(labelled, 'outputs', lambda *given: lambda variables: iter(logits([0, 1])))
  evaluation = module.make(subject(name, 2), labelled.Options('', 0, 64))
  found = evaluation.run({}, 1).scores
  assert found['cut'] == 7.0 and found['accuracy'] == 1.0
  assert found.keys() == evaluation.names


@mutation('  _check_best(subject, classes)\n', '')
def test_classes_that_were_forgotten_are_asked_for():
  with pytest.raises(UserError, match='data.task.classes is .*, of a number, .*eval/dev/spearman'):
    classification.make(subject('label', 1), labelled.Options('', 0, 64))
  several = subject('label', 1, 'eval/stars/dev/accuracy')
  several.config.phases = dict(stars={}, points={})
  classification._check_best(several, 1)
