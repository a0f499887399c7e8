"""What is printed behind a run: commands that take it."""

import types

import pytest
from mutation import mutation

from bertjax.train import report
from configs import bert
from configs.finetune import probe, tagging


def run_of(config, *params, names=('f1',), draws=None):
  """As much of a run as is looked at."""
  one = types.SimpleNamespace
  phase = one(evals=[one(evaluation=one(names=names))])
  variables = dict(params=dict.fromkeys(('encoder', *params)))
  return one(
    config=config, parts=(phase,), timeline=one(drawn=draws), abstract=one(variables=variables)
  )


TAGGING = tagging.get_config('ner')
USE = 'python -m bertjax.predict --workdir=runs/a{} --input=FILE'


@mutation('  elif _has_head(run):\n', '  else:\n')
@mutation("' --step=best' if scored else ''", "' --step=best'")
@pytest.mark.parametrize(
  ('run', 'offered'),
  [
    (run_of(TAGGING, 'tag'), USE.format(' --step=best')),
    (run_of(TAGGING, 'tag', names=()), USE.format('')),
    (run_of(TAGGING, 'tasks', draws=(1,)), USE.format(' --step=best --task=NAME')),
    (run_of(probe.get_config('ner'), 'tagger'), ''),
    (run_of(bert.get_config('tiny'), 'mlm'), 'python -m bertjax.main --config=configs/bert.py'),
  ],
)
def test_next_commands_take_the_run(capsys, run, offered):
  report.show(run, 'runs/a', '')
  shown = capsys.readouterr().out
  assert 'tensorboard --logdir runs/a' in shown and offered in shown
  assert ('bertjax.predict' in shown) == ('bertjax.predict' in offered)
