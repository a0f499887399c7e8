"""The recipes of fine-tuning: whole, with sources, and scored by what their task has."""

import pytest
import recipes
from mutation import mutation

from bertjax.data.labelled.common import rows
from bertjax.errors import UserError
from bertjax.evals import choice, classification, tagging
from bertjax.evals.squad import scores
from configs.finetune import glue, tfds, xnli

RECIPES = [
  *(f'glue:{task}' for task in glue.TASKS),
  'text:classes',
  'text:number',
  'tagging:ner',
  'tagging:pos',
  'probe:ner',
  'probe:pos',
  'choice:dream',
  'choice:race',
  'choice:swag',
  'squad:v1',
  'squad:v2',
  'xnli:de,zh',
  *(f'tfds:glue/{task}' for task in tfds.GLUE),
  *(f'tfds:{name}' for name in tfds.OTHERS),
]


@pytest.mark.parametrize('recipe', RECIPES)
@mutation(
  'finetune: a value without a source',
  'configs/finetune/glue.py',
  'c.data.task.update(cited("GLUE\'s files", header=header))',
  'c.data.task.header = header',
  case='glue:cola',
)
def test_every_value_has_a_source_and_best_is_a_score(recipe):
  config = recipes.sourced('finetune', recipe)
  if recipe == 'text:classes':  # which the user names
    config.data.task.classes = ('a', 'b')
  task, options = rows.task_of(config.data.task)
  (classes,) = task.classes(options).values()
  names = dict(
    classify=lambda: classification.names(classes),
    tags=lambda: tagging.names(options.scheme),
    choice=lambda: choice.NAMES,
    spans=lambda: scores.names(options.no_answer),
  )
  assert config.best.metric.removeprefix('eval/dev/') in names[config.data.task.name]()


def test_each_language_is_judged_by_a_file_of_its_own():
  config = xnli.get_config('de,zh')
  config.eval_steps = 7
  assert {name: (given.file, given.every) for name, given in config.evals.items()} == dict(
    dev=('', 7), de=('de.jsonl', 7), zh=('zh.jsonl', 7)
  )
  for wrong in ('de,', 'dev', 'de;zh'):
    with pytest.raises(UserError, match='expected languages with commas'):
      xnli.get_config(wrong)
