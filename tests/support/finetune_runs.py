"""Runs of fine-tuning from files, as processes."""

import json
import os
import sys

import forks
import pytest
from processes import ROOT, environment, exact, kill_when, lines, steps_logged

SIZE = dict(
  layers=1, width=32, heads=8, ffn=64, positions=64, dropout=0.1, attention_dropout=0.0,
  head_dropout=0.1, init_std=0.2,
)  # fmt: skip


def main(config, workdir):
  """How the command of a run begins."""
  where = f'--workdir={os.path.relpath(workdir, ROOT)}'
  return [sys.executable, '-m', 'bertjax.main', f'--config={config}', where]


def started(config, workdir, **keys):
  """The command of a run of configs/ with these keys."""
  return [*main(f'configs/{config}', workdir), *(f'--config.{k}={v}' for k, v in keys.items())]


def pretrain(config, workdir, text, vocab, model, **keys):
  """Four steps on a text, of which a part is held out."""
  steps = dict(total_steps=4, checkpoint_steps=4, eval_steps=4, length=32, batch_size=8)
  steps |= {'data.input': text, 'data.vocab': vocab, 'data.holdout': 0.2}
  steps |= {f'model.{key}': value for key, value in model.items()}
  run(started(config, workdir, **steps | keys))


def command(recipe, files, workdir, *more):
  """The command of a run on FILES/train.*, judged on FILES/dev.*, with FILES/vocab.txt; a recipe is
  one of configs/finetune, or FOLDER/NAME.py."""
  recipe = recipe if '/' in recipe else f'finetune/{recipe}'
  (train,), (dev,) = files.glob('train.*'), files.glob('dev.*')
  return [
    *main(f'configs/{recipe}', workdir), f'--config.data.train={train}',
    f'--config.data.dev={dev}', f'--config.data.vocab={files}/vocab.txt', '--config.length=40',
    '--config.log_steps=1', '--config.epochs=10', '--config.optimizer.schedule.peak=1e-2',
    '--config.batch_size=16', *(f'--config.model.{k}={v}' for k, v in SIZE.items()), *more,
  ]  # fmt: skip


def call(arguments, devices=1):
  """What came of a command, `python -m MODULE ..`."""
  assert arguments[:2] == [sys.executable, '-m'], arguments
  return forks.run(*arguments[2:], cwd=ROOT, env=environment(devices))


def run(arguments, devices=1):
  """What a process that succeeds prints."""
  done = call(arguments, devices)
  assert done.returncode == 0, done.stderr + done.stdout
  return done.stdout


def use(module, workdir, *more):
  """A finished `python -m bertjax.MODULE` on a run."""
  workdir = os.path.relpath(workdir, ROOT)
  return call([sys.executable, '-m', f'bertjax.{module}', f'--workdir={workdir}', *more])


def said(module, workdir, *more):
  """What a `use` that succeeds prints."""
  done = use(module, workdir, *more)
  assert done.returncode == 0, done.stderr
  return done.stdout


def predicted(workdir, *more):
  """The answers of `predict --json`."""
  return [json.loads(line) for line in said('predict', workdir, *more, '--json').splitlines()]


def exported(workdir, output, *more):
  """The directory of transformers that a run becomes."""
  said('convert', workdir, '--to=hf', f'--output={output}', *more)
  return output


def check_refused(arguments, workdir, said):
  """A run that cannot work says so in one line, and leaves nothing behind."""
  done = call(arguments)
  assert done.returncode != 0 and 'Traceback' not in done.stderr
  assert said in done.stderr, done.stderr
  assert not workdir.exists() or not list(workdir.iterdir())


def check_answers(workdir, file, output):
  """What `predict` answers to the questions of a file is as right as the run's evaluation says;
  returns the odds of no answer, by question."""
  predictions, odds = output / 'predictions.json', output / 'null_odds.json'
  done = use(
    'predict', workdir, f'--input={file}', f'--predictions={predictions}', f'--null_odds={odds}'
  )
  assert done.returncode == 0 and not done.stdout.strip(), done.stderr
  answers, null_odds = json.loads(predictions.read_text()), json.loads(odds.read_text())
  asked = [
    (paragraph['context'], question)
    for article in json.loads(file.read_text())['data']
    for paragraph in article['paragraphs']
    for question in paragraph['qas']
  ]
  assert list(answers) == list(null_odds) == [question['id'] for _, question in asked]
  right = 0
  for context, question in asked:
    answer = answers[question['id']]
    assert answer in context and (answer == '') == (null_odds[question['id']] > 0)
    right += answer == (question['answers'][0]['text'] if question['answers'] else '')
  assert right / len(asked) == pytest.approx(last(workdir, 'eval/dev/exact'))
  return null_odds


def every(workdir, name):
  """The values of a metric."""
  return [x[name] for x in lines(workdir) if name in x]


def last(workdir, name):
  """The last value of a metric."""
  return every(workdir, name)[-1]


def check_kill_and_resume(arguments, straight, workdir, after):
  """A run that is killed behind step `after`, with a checkpoint, goes on to the bits of one that
  was not; what it says when it goes on."""
  metrics, checkpoints = workdir / 'metrics.jsonl', workdir / 'checkpoints'
  saved = lambda: any(step.name.isdigit() for step in checkpoints.glob('*'))  # a whole one
  kill_when(arguments, lambda: steps_logged(workdir) >= after and saved())
  # The last line may be half of one: a kill can end a write where a page of the file ends.
  assert all(f'"step": {last(straight, "step")},' not in line for line in open(metrics))
  said = run(arguments)
  assert 'Resuming after step' in said
  assert exact(workdir) == exact(straight)
  return said
