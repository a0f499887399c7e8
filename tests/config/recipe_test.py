"""python -m bertjax.recipe: every key as a flag, with its source in a column beside it."""

import forks
from mutation import mutation

from bertjax.config import command_line, sections


def printed(*arguments: str) -> list[str]:
  done = forks.run('bertjax.recipe', *arguments)
  assert done.returncode == 0, done.stderr
  return done.stdout.splitlines()


@mutation("source='the command line'", 'source=row.source')
def test_a_value_has_its_source_beside_it():
  lines = printed('--config=configs/bert.py:large', '--config.total_steps=500')
  for value, source in (
    ('--config.batch_size=256', 'BERT paper, appendix A.2'),
    ('--config.total_steps=500', 'the command line'),
    ('--config.optimizer.schedule.warmup_steps=5', 'BERT paper, appendix A.2 (10000 there)'),
    ('--config.phases.phase1.share=0.9', 'BERT paper, appendix A.2'),
  ):
    assert f'{value:64}  # {source}' in lines
  assert not [line for line in lines if line.endswith('# default')]
  whole = printed('--config=configs/bert.py:large', '--all')
  assert f'{"--config.seed=0":64}  # default' in whole and len(lines) < 70 < len(whole)


@mutation('with changed.unlocked():', 'with changed.copy_and_resolve_references().unlocked():')
def test_a_phase_has_an_evaluation_of_its_own():
  lines = printed('--config=configs/finetune/tasks.py:mnli,sst2')
  own = "--config.phases.mnli.evals.mm.file='dev_mismatched.tsv'"
  assert any(line.startswith(own) for line in lines)


@mutation('super().__delitem__(key)\n    self._sources.pop(key, None)', 'super().__delitem__(key)')
def test_defaults_of_another_choice_go_once():
  config = command_line.load('configs/bert.py:test')
  config.data.mask.name = 'xlm'
  for _ in range(2):
    sections.complete(config)
  assert 'whole_word' not in config.data.mask
