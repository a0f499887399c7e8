"""The bench of fine-tuning: both sides learn a toy task from the same random weights."""

import json
import sys

import finetune_runs
import pytest
import task_files
import torch_models
import toy_questions
from mutation import mutation

from bertjax.bench.parts import finetune_time
from bertjax.errors import UserError
from configs.finetune import choice, glue, squad


def recipe(**fields):
  c = glue.get_config('sst2')
  c.init_from = 'hf:model'
  c.update_from_flattened_dict(fields)
  return c


def test_what_both_can_do_is_taken():
  finetune_time.check(recipe())


@pytest.mark.parametrize(
  'config, said',
  [
    (choice.get_config('dream'), 'expected classes, numbers, tags or questions'),
    (squad.get_config('v2,electra'), 'expected config.model.answers=none'),
    (recipe(init_from='runs/bert'), "config.init_from='runs/bert': expected hf:DIR"),
    (recipe(init_from=()), r'config.init_from=\(\): expected hf:DIR'),
    (recipe(**{'optimizer.layer_decay': 0.9}), 'without layer_decay'),
  ],
  ids=['choices', 'a head that scores ends behind a start', 'a run', 'none', 'rates by layer'],
)
def test_what_the_rival_cannot_do_is_refused(config, said):
  with pytest.raises(UserError, match=said):
    finetune_time.check(config)


@mutation(
  'bench finetune: the worst epoch counts',
  'bertjax/bench/parts/finetune_time.py',
  "choose = max if config.best.mode == 'max' else min",
  "choose = min if config.best.mode == 'max' else max",
)
def test_the_best_epoch_counts():
  scores = [dict(accuracy=0.5, loss=1.0), dict(accuracy=0.75, loss=2.0), dict(accuracy=0.7)]
  assert finetune_time.best(scores, recipe()) == 0.75


TAGS = "--config.data.task.classes=('PER','LOC')"
TOYS = {
  'text.py': (
    'stars/train.tsv', 'stars/dev.tsv', '--config.data.task.label=stars',
    "--config.data.task.classes=('bad','good')", '--config.epochs=6',
  ),
  'tagging.py:ner': ('names/train.conll', 'names/dev.conll', TAGS, '--config.epochs=6'),
  'squad.py:v1': (
    'asked/train.json', 'asked/dev.json', '--config.data.task.stride=16',
    '--config.data.task.question=2', '--config.epochs=8',
  ),
}  # fmt: skip


# Rows of both files and steps of the run; questions have windows.
ROWS_AND_STEPS = {
  'text.py': (128, 40, 48), 'tagging.py:ner': (150, 40, 57), 'squad.py:v1': (373, 76, 150),
}  # fmt: skip


@pytest.fixture(scope='module')
def files(tmp_path_factory):
  """Toy tasks, and a model of random weights with a vocabulary for all of them."""
  folder = task_files.write(tmp_path_factory.mktemp('files'))
  (folder / 'asked').mkdir()
  toy_questions.write(folder / 'asked', unanswered=0.0)
  torch_models.save('BertModel', folder / 'model')
  words = dict.fromkeys(
    name for each in ('.', 'asked') for name in (folder / each / 'vocab.txt').read_text().split()
  )
  size = json.loads((folder / 'model' / 'config.json').read_text())['vocab_size']
  names = [*words, *(f'w{n}' for n in range(size - len(words)))]
  (folder / 'model' / 'vocab.txt').write_text('\n'.join(names) + '\n')
  return folder


@pytest.mark.full
@mutation(
  "bench finetune: the rival's rows are in another order than what they are judged by",
  'bertjax/bench/parts/finetune_time.py',
  'place_n = np.argsort(_by_length(rows))',
  'place_n = _by_length(rows)',
)
@pytest.mark.parametrize('recipe_name', TOYS)
def test_both_sides_learn_from_the_same_weights(files, recipe_name):
  train, dev, *more = TOYS[recipe_name]
  command = [
    sys.executable, '-m', 'bertjax.bench', 'finetune', f'--config=configs/finetune/{recipe_name}',
    f'--config.init_from=hf:{files}/model', f'--config.data.train={files}/{train}',
    f'--config.data.dev={files}/{dev}', '--config.length=32', '--config.batch_size=16',
    '--config.optimizer.schedule.peak=1e-2', '--seeds=2', *more,
  ]  # fmt: skip
  found = json.loads(finetune_runs.run(command))
  assert (found['train'], found['dev'], found['steps']) == ROWS_AND_STEPS[recipe_name]
  for side in finetune_time.SIDES:
    assert len(found[side]['scores']) == 2 and found[side]['median'] > 0.9, found
    assert found[side]['whole']['median_s'] > found[side]['training']['median_s'] > 0
  assert set(found['ratio']) == {'whole', 'training'}
