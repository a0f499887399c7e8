"""Multiple choice: learned, judged and predicted; the right choice has a word of its own."""

import json

import finetune_runs
import jax
import labelled_cases
import pytest
from mutation import mutation

from bertjax.errors import UserError
from bertjax.train import setup

FILES = labelled_cases


@mutation('config.length * rows.parts_of(examples), config.data', 'config.length, config.data')
@mutation('Choice(int(p_G.argmax()), p_G.tolist())', 'Choice(int(p_G.argmax()) + 1, p_G.tolist())')
@pytest.mark.full
def test_choices_are_learned_and_predicted_as_the_evaluation_says(files, tmp_path):
  files = files / 'choices'
  given = (f'--config.{name}={value}' for name, value in labelled_cases.CHOICES.items())
  size = ('--config.length=16', '--config.model.positions=16')
  finetune_runs.run(finetune_runs.command('choice.py:swag', files, tmp_path, *given, *size))
  accuracy = finetune_runs.last(tmp_path, 'eval/dev/accuracy')
  assert accuracy > 0.9 > 0.7 > finetune_runs.last(tmp_path, 'eval/dev/majority')
  said = [json.loads(line) for line in (files / 'dev.jsonl').read_text().splitlines()]
  found = finetune_runs.predicted(tmp_path, f'--input={files}/dev.jsonl', '--cut')
  assert [each['choices'] for each in found] == [each['list'] for each in said]
  right = [f['choice'] == 'ABC'.index(s['right']) for f, s in zip(found, said, strict=True)]
  assert sum(right) / len(right) == pytest.approx(accuracy)
  assert all(sum(each['probabilities']) == pytest.approx(1) for each in found)


@pytest.mark.parametrize('case', ['texts, pooled', 'features of ELMo'])
@mutation("(texts := template['first_BG'].shape[1]) > 1", 'False')
@mutation('  one_text = True\n  batch', '  batch', case='texts, pooled')
@mutation('  one_text = True\n', '', file='bertjax/models/elmo.py', case='features of ELMo')
def test_a_model_that_reads_one_text_a_row_is_refused(files, tmp_path, case):
  config = labelled_cases.config('choices', files)
  config.model = labelled_cases.config(case, files).model
  config.model.update(labels=(('right', 1),), **{'token_labels': ()} if 'ELMo' in case else {})
  opened = labelled_cases.ensured(config, tmp_path)
  with pytest.raises(UserError, match='reads one text a row, got 3: expected rows of one, '):
    setup.make_run(config, opened, jax.devices()[:1])
