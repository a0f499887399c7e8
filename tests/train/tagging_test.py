"""Tags of words: learned, judged, predicted, exported; killed and resumed."""

import json

import finetune_runs
import pytest
import tagged_files
from mutation import mutation


@pytest.fixture(scope='module')
def files(tmp_path_factory):
  return tagged_files.write(tmp_path_factory.mktemp('files'))


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
@mutation(
  'answers.tags(x_TC[row.first_n - before], tags)',
  'answers.tags(x_TC[row.first_n - before - 1], tags)',
)
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
  long = f'--text={"the " * 70}'
  refused = finetune_runs.use('predict', straight, long)
  assert 'text 1 has 72 tokens' in refused.stderr and 'takes 40' in refused.stderr
  cut = finetune_runs.use('predict', straight, long, '--cut', '--json')
  answer = json.loads(cut.stdout)
  assert len(answer['tags']) == 70 and answer['probabilities'].count(None) == 32
  assert answer['tags'][-8:] == ['O'] * 8


@pytest.mark.full
def test_an_exported_run_says_the_same_in_transformers(straight, tmp_path):
  import transformers

  exported = finetune_runs.exported(straight, tmp_path / 'hf')
  config = json.loads((exported / 'config.json').read_text())
  assert config['architectures'] == ['BertForTokenClassification']
  assert config['id2label'] == {
    str(i): tag for i, tag in enumerate(('O', 'B-PER', 'I-PER', 'B-LOC', 'I-LOC'))
  }
  theirs = transformers.pipeline(
    'token-classification', str(exported), ignore_labels=[], aggregation_strategy='first'
  )
  text = 'the carla rossi sees oslo'
  done = finetune_runs.use('predict', straight, f'--text={text}', '--mode=tag', '--json')
  mine = json.loads(done.stdout)
  entities = {'carla rossi': 'PER', 'oslo': 'LOC'}
  for group in theirs(text):
    assert entities.get(group['word'], 'O') == group['entity_group']
  assert mine['tags'] == ['O', 'B-PER', 'I-PER', 'O', 'B-LOC']


@pytest.mark.full
@pytest.mark.parametrize(
  ('change', 'said'),
  [
    ('--config.data.dev={}/odd.conll', 'odd.conll, line 2: expected one of the tags O, B-PER'),
    ('--config.data.task.columns=(1,3)', 'line 1: expected words and tags in the columns (1, 3)'),
    ('--config.data.task.scheme=iob1', "expected one of 'iob2', 'plain'"),
    ("--config.model.token_labels=(('tag',3),)", "3 classes for 'tag', config.data.task 5"),
  ],
)
def test_what_cannot_work_is_said_in_one_line(files, tmp_path, change, said):
  done = finetune_runs.call(command(files, tmp_path / 'run', change.format(files)))
  assert done.returncode != 0 and 'Traceback' not in done.stderr
  assert said in done.stderr, done.stderr
  assert not (tmp_path / 'run' / 'config.json').exists()
