"""Tags of words: learned, judged and predicted."""

import finetune_runs
import pytest
import tagged_files
from mutation import mutation

FILES = tagged_files


@pytest.fixture(scope='module')
def straight(files, tmp_path_factory):
  workdir, classes = tmp_path_factory.mktemp('straight'), "--config.data.task.classes=('PER','LOC')"
  finetune_runs.run(finetune_runs.command('tagging.py', files, workdir, classes))
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
  found = tags_of(finetune_runs.said('predict', straight, f'--input={files}/dev.conll'))
  true = tags_of((files / 'dev.conll').read_text())
  assert [[w for w, _ in s] for s in found] == [[w for w, _ in s] for s in true]
  pairs = [pair for f, t in zip(found, true, strict=True) for pair in zip(f, t, strict=True)]
  right = sum(a == b for a, b in pairs) / len(pairs)
  assert right == pytest.approx(finetune_runs.last(straight, 'eval/dev/accuracy'))


@pytest.mark.full
def test_predictions_of_texts(straight):
  texts = ('--text=“carla rossi”, the carla.', '--text=\x7f')
  first, second = finetune_runs.predicted(straight, *texts)
  assert first['tokens'] == ['“', 'carla', 'rossi', '”', ',', 'the', 'carla', '.']
  assert first['tags'][1:3] == ['B-PER', 'I-PER'] and len(first['probabilities']) == 8
  assert first['spans'][0] == dict(type='PER', text='carla rossi', begin=1, end=12)
  assert len(second['tags']) == 1
  (cut,) = finetune_runs.predicted(straight, f'--text={"the " * 70}', '--cut')
  assert len(cut['tags']) == 70 and cut['probabilities'].count(None) == 32
  assert cut['tags'][-8:] == ['O'] * 8
