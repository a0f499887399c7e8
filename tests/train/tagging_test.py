"""Tags of words: learned, judged and predicted."""

import json

import finetune_runs
import pytest
import tagged_files
from mutation import mutation

FILES = tagged_files


def command(files, workdir, *more):
  classes = "--config.data.task.classes=('PER','LOC')"
  return finetune_runs.command('tagging.py', files, workdir, classes, *more)


@pytest.fixture(scope='module')
def straight(files, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('straight')
  finetune_runs.run(command(files, workdir))
  return workdir


def tags_of(text):
  return [
    [tuple(line.split()) for line in sentence.splitlines()]
    for sentence in text.strip().split('\n\n')
  ]


@mutation('true_n = examples.truth[number]', 'true_n = examples.truth[-1]')
@mutation('tags(x_TC[row.first_n - before], tags)', 'tags(x_TC[row.first_n - before - 1], tags)')
@pytest.mark.full
def test_tags_are_learned_and_predicted_as_the_evaluation_says(files, straight):
  assert finetune_runs.last(straight, 'eval/dev/f1') > 0.9
  done = finetune_runs.use('predict', straight, f'--input={files}/dev.conll')
  assert done.returncode == 0, done.stderr
  found, true = tags_of(done.stdout), tags_of((files / 'dev.conll').read_text())
  assert [[w for w, _ in s] for s in found] == [[w for w, _ in s] for s in true]
  pairs = [pair for f, t in zip(found, true, strict=True) for pair in zip(f, t, strict=True)]
  right = sum(a == b for a, b in pairs) / len(pairs)
  assert right == pytest.approx(finetune_runs.last(straight, 'eval/dev/accuracy'))


@pytest.mark.full
def test_predictions_of_texts(straight):
  done = finetune_runs.use(
    'predict', straight, '--text=the carla rossi sees', '--text=\x7f', '--json'
  )
  assert done.returncode == 0, done.stderr
  first, second = map(json.loads, done.stdout.splitlines())
  assert first['tokens'] == ['the', 'carla', 'rossi', 'sees']
  assert first['tags'] == ['O', 'B-PER', 'I-PER', 'O']
  assert all(0 < p <= 1 for p in first['probabilities']) and len(first['probabilities']) == 4
  assert len(second['tags']) == 1
  plain = finetune_runs.use('predict', straight, '--text=“carla rossi”, the carla.', '--json')
  answer = json.loads(plain.stdout)
  assert answer['tokens'] == ['“', 'carla', 'rossi', '”', ',', 'the', 'carla', '.']
  assert answer['spans'][0] == dict(type='PER', text='carla rossi', begin=1, end=12)
  long = f'--text={"the " * 70}'
  refused = finetune_runs.use('predict', straight, long)
  assert 'text 1 has 72 tokens' in refused.stderr and 'takes 40' in refused.stderr
  cut = finetune_runs.use('predict', straight, long, '--cut', '--json')
  answer = json.loads(cut.stdout)
  assert len(answer['tags']) == 70 and answer['probabilities'].count(None) == 32
  assert answer['tags'][-8:] == ['O'] * 8
