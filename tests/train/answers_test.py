"""Questions with the heads of XLNet and of ELECTRA: learned, judged and asked."""

import finetune_runs
import pytest
import toy_questions
from mutation import mutation

pytestmark = pytest.mark.full
EXACT = 'eval/dev/exact'
FILES = toy_questions


@pytest.fixture(scope='module')
def xlnet(files, tmp_path_factory):
  """The workdir of four steps of XLNet."""
  workdir = tmp_path_factory.mktemp('xlnet')
  text, model = files / 'text.txt', dict(layers=1, width=32, heads=4, ffn=64, init_std=0.2)
  finetune_runs.pretrain('xlnet.py:test', workdir, text, files / 'vocab.txt', model)
  return workdir


def command(recipe, files, workdir, **more):
  """A run on the questions, which take several windows."""
  keys = dict(length=32, epochs=8, batch_size=16, log_steps=1, eval_steps=50, checkpoint_steps=50)
  keys |= {'data.train': files / 'train.json', 'data.dev': files / 'dev.json'}
  keys |= {'data.task.stride': 16, 'data.task.question': 2, 'optimizer.schedule.peak': 1e-2}
  keys |= {'model.dropout': 0.0, 'model.init_std': 0.2} | more
  return finetune_runs.started(f'finetune/squad.py:{recipe}', workdir, **keys)


@pytest.fixture(scope='module')
def tuned(files, xlnet, tmp_path_factory):
  """(workdir, what was printed) of XLNet."""
  workdir = tmp_path_factory.mktemp('xlnet-tuned')
  return workdir, finetune_runs.run(command('v2,xlnet', files, workdir, init_from=xlnet))


@mutation('vocabulary, config.length, cls_last)', 'vocabulary, config.length)')
def test_xlnet_learns_to_answer_and_to_say_that_there_is_no_answer(tuned):
  workdir, said = tuned
  assert "answers 'none' -> 'xlnet'" in said or 'Made anew' in said
  assert finetune_runs.last(workdir, EXACT) > 0.9
  assert finetune_runs.last(workdir, 'eval/dev/no_answer') > 0.9
  assert finetune_runs.last(workdir, 'none_accuracy') > 0.9


@mutation('cls_last = self.net.frame.turned', 'cls_last = False')
@mutation(', **_limits(config.evals))', ')')
def test_predictions_of_xlnet_are_as_right_as_the_evaluation_says(files, tuned, tmp_path):
  workdir, _ = tuned
  finetune_runs.check_answers(workdir, files / 'dev.json', tmp_path)


@pytest.mark.parametrize('recipe', ['v2,electra', 'v2,albert'])
def test_other_encoders_learn_with_these_heads(recipe, files, tmp_path):
  size = {f'model.{key}': value for key, value in finetune_runs.SIZE.items()}
  size |= {'model.dropout': 0.0, 'data.vocab': files / 'vocab.txt'}
  finetune_runs.run(command(recipe, files, tmp_path / 'run', **size))
  assert finetune_runs.last(tmp_path / 'run', 'eval/dev/best_exact') > 0.9
