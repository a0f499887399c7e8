"""Pairs of texts for a model without segments: what is said, of which tasks, and once."""

import json

import finetune_runs
import jax
import pytest
import task_files
import toy_questions
from mutation import mutation

from bertjax.examples.labelled.common import from_config
from bertjax.train import report, setup
from configs import bert, modernbert, xlnet
from configs.finetune import choice, squad

REMEDY = 'roberta has 2: set config.data.task.separators=2'
SIZE = dict(layers=1, width=32, heads=8, ffn=64)
ROBERTA = dict(types=1, family='roberta')


@pytest.fixture(scope='module')
def files(tmp_path_factory):
  folder = task_files.write(tmp_path_factory.mktemp('files'))
  (folder / 'asked').mkdir()
  toy_questions.write(folder / 'asked')
  (folder / 'choices.jsonl').write_text(json.dumps(dict(text='the film', list=['a', 'b'], right=0)))
  return folder


def noted(config, workdir):
  """What is said of the one phase of a run."""
  store = from_config.ensure_vocabulary(config.data, str(workdir))
  (phase,) = setup.make_run(config, store, jax.devices()[:1]).parts
  return report.pairs(phase)


def asked(files):
  """The config of questions on texts."""
  c = squad.get_config('v2')
  c.data.task.update(stride=16, question=2)
  c.data.train = c.data.dev = str(files / 'asked/dev.json')
  return small(c, files)


def chosen(files):
  """The config of multiple choice."""
  c = choice.get_config('swag')
  columns = dict(context='text', question='', choices=('list',), label='right', answer='index')
  c.data.task.update(columns)
  c.data.train = c.data.dev = str(files / 'choices.jsonl')
  return small(c, files)


def small(c, files):
  c.model.update(SIZE | dict(positions=64))
  c.batch_size, c.length, c.total_steps, c.epochs = 16, 40, 20, 0.0
  c.data.vocab = str(files / 'vocab.txt')
  return c


PAIRS = dict(classify=lambda files: task_files.alone(files, 'points'), choice=chosen, spans=asked)


@pytest.mark.parametrize('task', PAIRS)
@mutation('any(type_T.any() for', 'any(type_T.all() for', case='classify')
@mutation('return self.types > 1', 'return self.types > 0', case='spans')
@mutation('get(with_labels(family), _BERT)[1]', 'get(with_labels(family), _BERT)[0]', case='choice')
def test_pairs_for_roberta_are_said_with_the_remedy(files, tmp_path, task):
  config = PAIRS[task](files)
  config.model.update(ROBERTA)
  said = noted(config, tmp_path)
  assert 'pairs of texts, and the model no segments' in said and said.endswith(REMEDY)
  config.data.task.separators = 2
  said = noted(config, tmp_path)
  assert 'separators=2' in said and 'set config' not in said


@mutation('has_segments = False', 'has_segments = True', file='bertjax/models/modernbert.py')
def test_a_model_without_a_table_of_segments_is_said_without_a_remedy(files, tmp_path):
  config = task_files.alone(files, 'points')
  with config.unlocked():
    config.model = modernbert.get_config('test').model.copy_and_resolve_references()
    config.model.update(words=False, labels=(('label', 0),))
  said = noted(config, tmp_path)
  assert 'the model no segments' in said and 'set config' not in said


def test_nothing_is_said_where_segments_tell_or_nothing_is_to_be_told(files, tmp_path):
  of_bert = task_files.alone(files, 'points')
  assert of_bert.model.types == bert.model('base').types == 2
  of_xlnet = task_files.alone(files, 'points')
  with of_xlnet.unlocked():
    of_xlnet.model = xlnet.get_config('test').model.copy_and_resolve_references()
    of_xlnet.model.update(words=False, labels=(('label', 0),))
  single = task_files.alone(files, 'stars')
  single.model.update(ROBERTA)
  for config in (of_bert, of_xlnet, single):
    assert noted(config, tmp_path) == ''


@pytest.mark.full
@mutation('progress.note(pairs)', 'pairs.strip()')
def test_a_run_says_it_once(files, tmp_path):
  arguments = task_files.command(files, tmp_path / 'run', '--config.model.types=1')
  said = finetune_runs.run([*arguments, '--config.total_steps=2', '--config.model.family=roberta'])
  assert said.count('the model no segments') == 1 and "Phase 'points' has pairs" in said
  assert said.count(REMEDY) == 1
