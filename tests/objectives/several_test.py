"""Any number of classes for each text; weights of classes and smoothed labels."""

import dataclasses
import json

import finetune_runs
import jax
import numpy as np
import pytest
from ml_collections import ConfigDict
from mutation import mutation
from slow_imports import torch, transformers

from bertjax import Model
from bertjax.errors import UserError
from bertjax.evals import classification
from bertjax.examples.labelled import classify as task
from bertjax.examples.labelled.common import from_config
from bertjax.examples.labelled.common.records import Record
from bertjax.objectives import classify

CLASSES = ('sea', 'sky', 'sun')


@pytest.mark.parametrize('smoothing', [0.0, 0.2])
@pytest.mark.parametrize('weights', [(), (0.5, 2.0, 3.0)])
@pytest.mark.parametrize('several', [False, True])
@mutation('weight_11C * soft_BGC * yes_BGC', 'soft_BGC * yes_BGC', case='True-weights1-0.0')
@mutation('jnp.sum(weight_BG * of_class_BG)', 'jnp.sum(weight_BG)', case='False-weights1-0.0')
def test_losses_are_those_of_torch(several, weights, smoothing):
  rng = np.random.default_rng(0)
  logits_BGC = rng.normal(size=(6, 1, 3)).astype(np.float32)
  weight_BG = np.array([[1, 1, 0, 1, 1, 1]], np.float32).T
  weight_C = torch.tensor(weights) if weights else None
  logits = torch.tensor(logits_BGC[weight_BG[:, 0] > 0, 0], requires_grad=True)
  if several:
    label = rng.integers(0, 2, (6, 1, 3)).astype(np.float32)
    kept = torch.tensor(label[weight_BG[:, 0] > 0, 0])
    kept = kept * (1 - smoothing) + smoothing / 2
    theirs = torch.nn.BCEWithLogitsLoss(pos_weight=weight_C)(logits, kept)
  else:
    label = rng.integers(0, 3, (6, 1)).astype(np.int32)
    kept = torch.tensor(label[weight_BG > 0]).long()
    theirs = torch.nn.CrossEntropyLoss(weight_C, label_smoothing=smoothing)(logits, kept)
  theirs.backward()
  batch = {'example_weight_BG': weight_BG, f'label_BG{"C" * several}': label}

  def loss(logits_BGC):
    term = classify.example_terms(logits_BGC, batch, smoothing, weights)['label']
    return term.total / term.weight

  ours, gradient = jax.value_and_grad(loss)(logits_BGC)
  np.testing.assert_allclose(ours, theirs.item(), rtol=1e-5)
  np.testing.assert_allclose(gradient[weight_BG[:, 0] > 0, 0], logits.grad, atol=1e-6)


def options(**given):
  return task.Options(('text',), 'label', CLASSES, **({'several': ','} | given))


@mutation('said if isinstance(said, list) else', '')
def test_classes_are_read_from_a_column_or_a_list():
  found = ['sea, sun', ['sun', 'sky'], '', [], 'sky']
  records = [Record(f'line {n}', dict(text='x', label=label)) for n, label in enumerate(found)]
  label = task.labels(records, options())['label']
  assert label.tolist() == [[[1, 0, 1]], [[0, 1, 1]], [[0, 0, 0]], [[0, 0, 0]], [[0, 1, 0]]]
  with pytest.raises(UserError, match="line 7: expected one of 'sea', 'sky', 'sun' .* got 'rain'"):
    task.labels([Record('line 7', dict(label=['sea', 'rain']))], options())
  for wrong in (dict(classes=()), dict(soft_label='said')):
    with pytest.raises(UserError, match='several=.*expected classes, any number'):
      task.check(dataclasses.replace(options(), **wrong))


@mutation('return FLAGS[said]', 'return not FLAGS[said]')
def test_classes_may_have_a_column_of_0_and_1_each(tmp_path):
  (tmp_path / 'a.tsv').write_text('text\tsun\tsea\tsky\nx\t1\t0\t1\ny\t0.0\t1.0\t0\n')
  read = lambda **given: list(task.read(f'{tmp_path}/a.tsv', options(**given)))
  apart = dataclasses.replace(options(), label='')
  label = task.labels(list(task.read(f'{tmp_path}/a.tsv', apart)), apart)['label']
  assert label.tolist() == [[[0, 1, 1]], [[1, 0, 0]]]
  with pytest.raises(UserError, match="expected 'label' among .* set config.data.task.label=''"):
    read()
  with pytest.raises(UserError, match="line 7: expected 0 or 1 in 'sky', got 2"):
    task.labels([Record('line 7', dict(sea=1, sky=2, sun=0))], apart)
  said = task.labels([Record('line 1', dict(sea=True, sky='false', sun='1'))], apart)['label']
  assert said.tolist() == [[[1, 0, 1]]]
  with pytest.raises(UserError, match="label: expected the name of a column, got ''"):
    task.check(dataclasses.replace(apart, several=''))


@mutation('if not options.label and options.classes == INFER:', 'if False:')
@mutation('if name not in options.text]', ']')
def test_classes_may_be_the_columns_beside_texts(tmp_path):
  (tmp_path / 'a.tsv').write_text('text\tsun\tsea\nx\t1\t0\ny\t0\t0\n')
  given = dataclasses.asdict(options()) | dict(name='classify', label='', classes=('infer',))
  data = dict(task=given, train=f'{tmp_path}/a.tsv', examples=0)
  assert from_config.inferred(ConfigDict(dict(data=data))) == ('sea', 'sun')
  wrong = Record('line 7', dict(sea=1, sun='17'))
  with pytest.raises(UserError, match="0 or 1 in 'sun', got '17': .* name the columns that are"):
    task.labels([wrong], dataclasses.replace(options(), label='', classes=('sea', 'sun')))


@mutation('average=how', "average='micro'")
def test_scores_by_hand():
  logits_nC = np.array([[2, -1, 1], [-1, 3, -2], [1, 2, -1]], np.float32)
  label_nC = np.array([[1, 0, 1], [0, 1, 0], [1, 0, 0]], np.float32)
  found = classification.judged(logits_nC, label_nC[:, None])
  assert found.keys() == classification.names(3, ',')
  # sea 2 of 2, sky one right of two said, sun 1 of 1; the third text has its class second.
  assert found['micro_f1'] == pytest.approx(8 / 9)
  assert found['macro_f1'] == pytest.approx((1 + 2 / 3 + 1) / 3)
  assert found['exact'] == pytest.approx(2 / 3)
  assert found['ranking'] == pytest.approx((1 + 1 + 1 / 2) / 3)
  p_nC = 1 / (1 + np.exp(-logits_nC.astype(np.float64)))
  right_nC = np.where(label_nC > 0, p_nC, 1 - p_nC)
  assert found['loss'] == pytest.approx(-np.log(right_nC).mean())


@pytest.mark.full
def test_a_run_is_trained_judged_used_and_exported(tmp_path):
  """Each class is a word of the text; transformers' pipeline says what `Model.label` says."""
  rng = np.random.default_rng(0)
  said = [[c for c in CLASSES if rng.random() < 0.5] for _ in range(96)]
  lines = [dict(text=' '.join(['x', *names, 'y']), label=names) for names in said]
  for name in ('train', 'dev'):
    (tmp_path / f'{name}.jsonl').write_text(''.join(json.dumps(line) + '\n' for line in lines))
  pieces = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'x', 'y', *CLASSES]
  (tmp_path / 'vocab.txt').write_text('\n'.join(pieces) + '\n')
  more = ['--config.epochs=30', '--config.length=16', f'--config.data.task.classes={CLASSES}']
  more += ['--config.objective.class_weights=(1.0,1.0,2.0)']
  command = finetune_runs.command('text.py:several', tmp_path, tmp_path / 'run', *more)
  finetune_runs.run(command)
  assert max(finetune_runs.every(tmp_path / 'run', 'eval/dev/micro_f1')) > 0.95
  texts = ['x sea sun y', 'x y', 'x sky y']
  ours = Model.load(tmp_path / 'run').label(texts)
  assert [each.label for each in ours] == [['sea', 'sun'], [], ['sky']]
  finetune_runs.exported(tmp_path / 'run', tmp_path / 'hf')
  config = json.loads((tmp_path / 'hf/config.json').read_text())
  assert config['problem_type'] == 'multi_label_classification'
  pipeline = transformers.pipeline('text-classification', model=str(tmp_path / 'hf'), device=-1)
  theirs = [{e['label']: e['score'] for e in each} for each in pipeline(texts, top_k=None)]
  again = Model.load(f'hf:{tmp_path}/hf').label(texts)
  for mine, back, other in zip(ours, again, theirs, strict=True):
    assert back.label == mine.label
    for name in CLASSES:
      assert mine.probabilities[name] == pytest.approx(other[name], abs=1e-5)
