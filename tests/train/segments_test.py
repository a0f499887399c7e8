"""Pairs of texts for a model without segments: what is said, of which tasks, and once."""

import finetune_runs
import jax
import labelled_cases
import pytest
import task_files
from mutation import mutation

from bertjax.train import report, setup
from configs import bert, modernbert, xlnet

REMEDY = 'roberta has 2: set config.data.task.separators=2'
ROBERTA = {'model.types': 1, 'model.family': 'roberta'}
FILES = labelled_cases


def noted(config, workdir):
  """What is said of the one phase of a run."""
  store = labelled_cases.ensured(config, workdir)
  (phase,) = setup.make_run(config, store, jax.devices()[:1]).parts
  return report.pairs(phase)


@pytest.mark.parametrize('case', ['numbers', 'choices', 'questions without answers'])
@mutation('any(type_T.any() for', 'any(type_T.all() for', case='numbers')
@mutation('return self.types > 1', 'return self.types > 0', case='questions without answers')
@mutation('(with_labels(family), _BERT)[1]', '(with_labels(family), _BERT)[0]', case='choices')
def test_pairs_for_roberta_are_said_with_the_remedy(files, tmp_path, case):
  config = labelled_cases.config(case, files, **ROBERTA)
  said = noted(config, tmp_path)
  assert 'pairs of texts, and the model no segments' in said and said.endswith(REMEDY)
  config.data.task.separators = 2
  said = noted(config, tmp_path)
  assert 'separators=2' in said and 'set config' not in said


@mutation('has_segments = False', 'has_segments = True', file='bertjax/models/modernbert.py')
def test_a_model_without_a_table_of_segments_is_said_without_a_remedy(files, tmp_path):
  config = labelled_cases.config('numbers', files)
  with config.unlocked():
    config.model = modernbert.get_config('test').model.copy_and_resolve_references()
    config.model.update(words=False, labels=(('label', 0),))
  said = noted(config, tmp_path)
  assert 'the model no segments' in said and 'set config' not in said


def test_nothing_is_said_where_segments_tell_or_nothing_is_to_be_told(files, tmp_path):
  of_bert = labelled_cases.config('numbers', files)
  assert of_bert.model.types == bert.model('base').types == 2
  of_xlnet = labelled_cases.config('numbers', files)
  with of_xlnet.unlocked():
    of_xlnet.model = xlnet.get_config('test').model.copy_and_resolve_references()
    of_xlnet.model.update(words=False, labels=(('label', 0),))
  single = labelled_cases.config('texts', files, **ROBERTA)
  for config in (of_bert, of_xlnet, single):
    assert noted(config, tmp_path) == ''


@pytest.mark.full
@mutation('progress.note(pairs)', 'pairs.strip()')
def test_a_run_says_it_once(files, tmp_path):
  arguments = task_files.command(files, tmp_path / 'run', '--config.model.types=1')
  said = finetune_runs.run([*arguments, '--config.total_steps=2', '--config.model.family=roberta'])
  assert said.count('the model no segments') == 1 and "Phase 'points' has pairs" in said
  assert said.count(REMEDY) == 1
