"""Questions with the heads of XLNet and of ELECTRA: learned, judged, asked and exported."""

import json

import finetune_runs
import numpy as np
import pytest
import toy_questions
from mutation import mutation

import bertjax

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


def of_xlnet(files, xlnet, workdir):
  return command('v2,xlnet', files, workdir, init_from=xlnet)


@pytest.fixture(scope='module')
def tuned(files, xlnet, tmp_path_factory):
  """(workdir, what was printed) of XLNet."""
  workdir = tmp_path_factory.mktemp('xlnet-tuned')
  return workdir, finetune_runs.run(of_xlnet(files, xlnet, workdir))


@mutation('vocabulary, config.length, cls_last)', 'vocabulary, config.length)')
def test_xlnet_learns_to_answer_and_to_say_that_there_is_no_answer(tuned):
  workdir, said = tuned
  assert "answers 'none' -> 'xlnet'" in said or 'Made anew' in said
  assert finetune_runs.last(workdir, EXACT) > 0.9
  assert finetune_runs.last(workdir, 'eval/dev/no_answer') > 0.9
  assert finetune_runs.last(workdir, 'none_accuracy') > 0.9


@mutation('cls_last = self.net.frame.turned', 'cls_last = False')
@mutation("task |= _limits(config['evals'])", 'task |= {}')
def test_predictions_of_xlnet_are_as_right_as_the_evaluation_says(files, tuned, tmp_path):
  workdir, _ = tuned
  finetune_runs.check_answers(workdir, files / 'dev.json', tmp_path)


def test_an_exported_xlnet_answers_the_same_in_transformers(tuned, tmp_path):
  import torch
  import transformers

  workdir, _ = tuned
  exported = finetune_runs.exported(workdir, tmp_path / 'hf')
  theirs = transformers.XLNetForQuestionAnswering.from_pretrained(exported)
  said = json.loads((exported / 'parity.json').read_text())['outputs']
  assert {'answers', 'none'} <= {each['of'] for each in said['differences']}
  tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
  text = 'the film was seen by Eve , at one of all'
  ids = tokenizer.convert_tokens_to_ids([*text.lower().split(), '[SEP]', 'who', '[SEP]', '[CLS]'])
  size = len(ids)
  allowed = np.isin(np.arange(size), [*range(size - 4), size - 1])
  with torch.no_grad():
    out = theirs(
      input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([[0] * (size - 3) + [1, 1, 2]]),
      p_mask=torch.tensor(~allowed[None]).float(), cls_index=torch.tensor([size - 1]),
    )  # fmt: skip
  (ours,) = bertjax.Model.load(workdir).answer(['who'], [text])
  assert text.split()[out.start_top_index[0, 0]] == ours.text == 'Eve'
  assert ours.odds == pytest.approx(float(out.cls_logits[0]), abs=1e-4)


@pytest.mark.parametrize('recipe', ['v2,electra', 'v2,albert'])
def test_other_encoders_learn_with_these_heads(recipe, files, tmp_path):
  size = {f'model.{key}': value for key, value in finetune_runs.SIZE.items()}
  size |= {'model.dropout': 0.0, 'data.vocab': files / 'vocab.txt'}
  finetune_runs.run(command(recipe, files, tmp_path / 'run', **size))
  assert finetune_runs.last(tmp_path / 'run', 'eval/dev/best_exact') > 0.9
