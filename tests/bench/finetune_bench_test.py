"""The bench of fine-tuning: both sides learn a toy task from the same random weights."""

import json
import subprocess
import sys

import pytest
import task_files
import torch_models
from mutation import mutation
from processes import ROOT, environment

from bertjax.bench import finetune_time
from bertjax.errors import UserError
from configs.finetune import glue, squad

SPECIAL = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')


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
    (squad.get_config('v1'), 'expected classes or numbers of texts'),
    (recipe(init_from='runs/bert'), "config.init_from='runs/bert': expected hf:DIR"),
    (recipe(**{'optimizer.layer_decay': 0.9}), 'without layer_decay'),
  ],
  ids=['questions', 'a run', 'rates by layer'],
)
def test_what_the_rival_cannot_do_is_refused(config, said):
  with pytest.raises(UserError, match=said):
    finetune_time.check(config)


@mutation(
  'bench finetune: the worst epoch counts',
  'bertjax/bench/finetune_time.py',
  "choose = max if config.best.mode == 'max' else min",
  "choose = min if config.best.mode == 'max' else max",
)
def test_the_best_epoch_counts():
  scores = [dict(accuracy=0.5, loss=1.0), dict(accuracy=0.75, loss=2.0), dict(accuracy=0.7)]
  assert finetune_time.best(scores, recipe()) == 0.75


@pytest.mark.full
def test_both_sides_learn_from_the_same_weights(tmp_path):
  files = task_files.write(tmp_path)
  torch_models.save('BertModel', tmp_path / 'model')
  words = (*SPECIAL, *task_files.FILM, *task_files.GOOD, *task_files.BAD)
  size = json.loads((tmp_path / 'model' / 'config.json').read_text())['vocab_size']
  names = [*words, *(f'w{n}' for n in range(size - len(words)))]
  (tmp_path / 'model' / 'vocab.txt').write_text('\n'.join(names) + '\n')
  command = [
    sys.executable, '-m', 'bertjax.bench', 'finetune', '--config=configs/finetune/text.py',
    f'--config.init_from=hf:{tmp_path}/model', *(
      f'--config.data.{part}={task_files.path(files, "stars", part)}' for part in ('train', 'dev')
    ),
    '--config.data.task.label=stars', "--config.data.task.classes=('bad','good')",
    '--config.length=32', '--config.epochs=6', '--config.batch_size=16',
    '--config.optimizer.schedule.peak=1e-2', '--seeds=2',
  ]  # fmt: skip
  done = subprocess.run(
    command, cwd=ROOT, env=environment(), text=True, capture_output=True, timeout=600, check=False
  )
  assert done.returncode == 0, done.stderr
  found = json.loads(done.stdout)
  assert (found['train'], found['dev'], found['epochs']) == (128, 40, 6)
  for side in finetune_time.SIDES:
    assert len(found[side]['scores']) == 2 and found[side]['median'] > 0.9, found
    assert found[side]['whole']['median_s'] > found[side]['training']['median_s'] > 0
  assert set(found['ratio']) == {'whole', 'training'}
