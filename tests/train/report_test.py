"""What is printed behind a run: commands that take it."""

import types

import pytest
from mutation import mutation

from bertjax.train import report
from configs import bert, diffusion, gpt, quickstart
from configs.finetune import elmo, probe, tagging, write


def run_of(config, *params, names=('f1',), draws=None):
  """As much of a run as is looked at."""
  one = types.SimpleNamespace
  phase = one(evals=[one(evaluation=one(names=names))])
  variables = dict(params=dict.fromkeys(('encoder', *params)))
  return one(
    config=config, parts=(phase,), timeline=one(drawn=draws), abstract=one(variables=variables)
  )


TAGGING = tagging.get_config('ner')
LABELLED_GPT = gpt.get_config('test')
LABELLED_GPT.model.labels = (('label', 2),)
LABELLED_GPT.data.reader = 'labelled'
USE = 'python -m bertjax.predict --workdir=runs/a{} --input=FILE'


@mutation('  elif _has_head(run):\n', '  else:\n')
@mutation("' --step=best' if scored else ''", "' --step=best'")
@pytest.mark.parametrize(
  ('run', 'offered'),
  [
    (run_of(TAGGING, 'tag'), USE.format(' --step=best')),
    (run_of(elmo.get_config('ner'), 'tag'), USE.format(' --step=best')),
    (run_of(TAGGING, 'tag', names=()), USE.format('')),
    (run_of(TAGGING, 'tasks', draws=(1,)), USE.format(' --step=best --task=NAME')),
    (run_of(probe.get_config('ner'), 'tagger'), ''),
    (
      run_of(bert.get_config('tiny'), 'mlm'),
      'python -m bertjax.embed --workdir=runs/a --input=FILE',
    ),
    (
      run_of(diffusion.get_config('tiny'), 'mlm'),
      'python -m bertjax.generate --workdir=runs/a --text=',
    ),
    (run_of(gpt.get_config('test'), 'layers'), 'python -m bertjax.generate --workdir=runs/a'),
    (
      run_of(write.get_config(), 'decoder'),
      'python -m bertjax.generate --workdir=runs/a --step=best --input=FILE',
    ),
    (run_of(LABELLED_GPT, 'label'), USE.format(' --step=best')),
    (run_of(quickstart.get_config(), 'mlm'), 'python -m bertjax.main --config=configs/bert.py'),
  ],
)
@mutation("if importlib.util.find_spec('tensorboard'):", 'if True:')
@mutation("get('family', 'none') != 'none'", "name != ''")
@mutation('if labelled and writes:', 'if False:')
@mutation('if diffuses or writes:', 'if writes:')
@mutation(" and any(h.kind == 'word' for h in model.output_heads)", '')
def test_next_commands_take_the_run(capsys, monkeypatch, run, offered):
  for installed in (True, False):
    monkeypatch.setattr(report.importlib.util, 'find_spec', lambda name, is_=installed: is_)
    report.show(run, 'runs/a', '', {})
    shown = capsys.readouterr().out
    assert ('tensorboard --logdir runs/a' in shown) == installed and offered in shown
  assert ('bertjax.predict' in shown) == ('bertjax.predict' in offered)
  assert ('--to=hf' in shown) == ('bertjax.predict' in offered and run.config.model.name != 'elmo')


@mutation("if name == 'accuracy' and", "if name == 'f1' and")
@mutation('or name not in OF_WORDS', '')
@mutation("if name == 'mlm':", "if name == '':")
@mutation("f'{set_}/unigram_entropy'", "'eval/unigram_entropy'")
@mutation('if found < unigram:', 'if found > unigram:')
def test_what_was_reached_is_told_by_what_frequencies_know():
  best = types.SimpleNamespace(metric='eval/mlm_masked')
  said = lambda **scores: report.reached(best, {f'eval/{k}': x for k, x in scores.items()})
  assert 'has learned 1.250 from context' in said(mlm_masked=5.0, unigram_entropy=6.25)
  assert 'nothing is learned from context yet' in said(mlm_masked=6.5, unigram_entropy=6.25)
  assert said(unigram_entropy=6.25) == ''
  best = types.SimpleNamespace(metric='eval/xlm/mlm_masked')
  assert 'learned 2.000' in said(**{'xlm/mlm_masked': 3.0, 'xlm/unigram_entropy': 5.0})
  best = types.SimpleNamespace(metric='eval/mlm')  # of special tokens too, as of masked diffusion
  learned = said(mlm=4.0, mlm_masked=5.0, unigram_entropy=6.0)
  assert 'costs 5.000 nats (eval/mlm_masked)' in learned and 'learned 1.000' in learned
  assert said(mlm=4.0, mlm_masked=5.0) == 'The last evaluation found eval/mlm 4.'
  best = types.SimpleNamespace(metric='eval/dev/accuracy')
  assert said(**{'dev/accuracy': 0.75, 'dev/majority': 0.5}).endswith(
    'found eval/dev/accuracy 0.75; always to give the most frequent answer reaches 0.5.'
  )
  for name in ('nsp', 'rtd_auc'):
    best = types.SimpleNamespace(metric=f'eval/{name}')
    found = said(**{name: 0.75, 'unigram_entropy': 6.25})
    assert found == f'The last evaluation found eval/{name} 0.75.'
