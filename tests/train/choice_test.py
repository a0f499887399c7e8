"""Multiple choice: learned, judged and predicted."""

import json
import random

import finetune_runs
import pytest
from mutation import mutation

WORDS = ('red', 'green', 'blue', 'dark', 'light')
OTHERS = ('the', 'house', 'is', 'of', 'a')


@pytest.fixture(scope='module')
def files(tmp_path_factory):
  """The right choice is the one that has the color word 'red'; contexts say nothing of it."""
  folder, draw = tmp_path_factory.mktemp('files'), random.Random(0)
  pieces = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *OTHERS, *WORDS]
  (folder / 'vocab.txt').write_text('\n'.join(pieces) + '\n')
  for name, count in (('train', 160), ('dev', 40)):
    lines = []
    for _ in range(count):
      right = draw.randrange(3)
      others = iter(draw.sample(WORDS[1:], 2))
      choices = ['a red house' if n == right else f'a {next(others)} house' for n in range(3)]
      context = ' '.join(draw.choice(OTHERS) for _ in range(draw.choice([2, 5, 20])))
      lines.append(json.dumps(dict(text=context, list=choices, right='ABC'[right])))
    (folder / f'{name}.jsonl').write_text('\n'.join(lines) + '\n')
  return folder


def command(files, workdir, *more):
  columns = dict(context='text', question='', choices="('list',)", label='right', answer='letter')
  given = (f'--config.data.task.{name}={value}' for name, value in columns.items())
  return finetune_runs.command(
    'choice.py:swag', files, workdir, *given, '--config.length=16', '--config.model.positions=16',
    *more,
  )  # fmt: skip


@pytest.fixture(scope='module')
def straight(files, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('straight')
  finetune_runs.run(command(files, workdir))
  return workdir


@mutation('config.length * rows.parts_of(examples), config.data', 'config.length, config.data')
@mutation('Choice(int(p_G.argmax()), p_G.tolist())', 'Choice(int(p_G.argmax()) + 1, p_G.tolist())')
@pytest.mark.full
def test_choices_are_learned_and_predicted_as_the_evaluation_says(files, straight):
  accuracy = finetune_runs.last(straight, 'eval/dev/accuracy')
  assert accuracy > 0.9 > 0.7 > finetune_runs.last(straight, 'eval/dev/majority')
  said = [json.loads(line) for line in (files / 'dev.jsonl').read_text().splitlines()]
  done = finetune_runs.use('predict', straight, f'--input={files}/dev.jsonl', '--cut', '--json')
  assert done.returncode == 0, done.stderr
  found = [json.loads(line) for line in done.stdout.splitlines()]
  assert [each['choices'] for each in found] == [each['list'] for each in said]
  right = [f['choice'] == 'ABC'.index(s['right']) for f, s in zip(found, said, strict=True)]
  assert sum(right) / len(right) == pytest.approx(accuracy)
  assert all(sum(each['probabilities']) == pytest.approx(1) for each in found)
