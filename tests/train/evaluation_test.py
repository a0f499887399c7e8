"""Evaluations in a run: names, when they are due, what is refused, what a failing one costs."""

import json
import re

import jax
import pytest
from mutation import mutation
from processes import ROOT, exact, lines
from systems import tiny

from bertjax.errors import UserError
from bertjax.train import evaluation, first_state, setup
from bertjax.train import loop as train_loop
from bertjax.train.phase import Phase
from bertjax.types import Evaluation, Report


def short(rich_store, name='roberta', **overrides):
  """A run of four steps with a checkpoint every second one."""
  few = dict(total_steps=4, log_steps=3, eval_steps=2, checkpoint_steps=2)
  sizes = {'data.store': str(rich_store), 'evals.held_out.examples': 8}
  return tiny(name, **few, **sizes, **{'evals.pseudo_perplexity.rows': 0}, **overrides)


@mutation('config.evals.short = copy', 'config.evals.held_out = copy', file='docs/running.md')
def test_a_set_of_ones_own_as_the_docs_add_it(rich_store):
  page = (ROOT / 'docs' / 'running.md').read_text()
  (block,) = [x for x in re.findall(r'```python\n(.*?)```', page, re.DOTALL) if 'evals.short' in x]
  names: dict = {}
  exec(block, names)
  config = names['get_config']('test')
  config.update_from_flattened_dict({'data.store': str(rich_store), 'evals.short.every': 3})
  run = setup.make_run(config, rich_store, jax.devices()[:1])
  found = {each.name: each.every for each in run.phases[0].evals}
  assert (found['held_out'], found['short']) == (config.eval_steps, 3)


@pytest.mark.parametrize(
  'name, score, phase, expected',
  [
    ('held_out', 'mlm', '', 'eval/mlm'),
    ('pseudo_perplexity', 'pseudo_perplexity', '', 'eval/pseudo_perplexity'),
    ('memory', 'memory_64/lm', 'a', 'eval/a/memory/memory_64/lm'),
  ],
)
def test_scores_are_named_by_phase_set_and_score(name, score, phase, expected):
  nothing = Evaluation(frozenset(), lambda variables, step: Report({}))
  assert evaluation.EvalSet(name, 0, nothing, phase).score_name(score) == expected


@pytest.mark.parametrize(
  'every, due', [(0, [False, False, True]), (2, [False, True, True]), (3, [False, False, True])]
)
def test_a_set_is_due_every_so_many_steps_and_at_the_end(every, due):
  nothing = Evaluation(frozenset(), lambda variables, step: Report({}))
  s = evaluation.EvalSet('a', every, nothing)
  assert [s.due(1, False), s.due(2, False), s.due(5, True)] == due


@pytest.mark.parametrize(
  'overrides, message',
  [
    ({'evals.held_out.type': 'los'}, "config.evals.held_out.type: .* did you mean 'loss'"),
    (
      {'model.attend': 'causal', 'data.mask': dict(name='causal')},
      "can be judged by loss, linear_probe, got type='pseudo_perplexity'",
    ),
    ({'best.metric': 'eval/mlm_maskd'}, "best.metric: .* did you mean 'eval/mlm_masked'"),
  ],
)
def test_what_cannot_be_evaluated_is_refused_in_set_up(rich_store, overrides, message):
  config = tiny('roberta')
  for key, value in overrides.items():
    with config.ignore_type():
      config.update_from_flattened_dict({key: value})
  with pytest.raises(UserError, match=message):
    setup.make_run(config, rich_store, jax.devices()[:1])


def test_sentences_are_met_in_set_up_and_completed(rich_store):
  config = tiny('roberta')
  config.evals.fill_mask = dict(type='fill_mask', every=0, language='', sentences=('piece7',))
  with pytest.raises(UserError, match='expected 1 to .* times .MASK.'):
    setup.make_run(config, rich_store, jax.devices()[:1])
  config.evals.fill_mask.sentences = ('piece7 [MASK] piece8 [MASK]', '[MASK]')
  run = setup.make_run(config, rich_store, jax.devices()[:1])
  variables = first_state.initial_state(run).variables
  completing = [each for each in run.evals(1) if each.name == 'fill_mask']
  _, (table,) = evaluation.run_due(completing, variables, 7, True)
  assert table.row_count == 2 and 'step 7' in table.title
  lines = [cell.splitlines() for cell in table.columns[1].cells]
  assert [len(each) for each in lines] == [2, 1]  # one for each mask, of five pieces each
  assert {len(line.split('  ')) for each in lines for line in each} == {5}


@mutation(
  '      if done % config.checkpoint_steps == 0 or last or leaving:\n',
  '      if evaluation.due(self._run.evals(done), done, last):\n'
  '        self._evaluate(done, last)\n'
  '      if done % config.checkpoint_steps == 0 or last or leaving:\n',
)
@mutation('        self._evaluate(done, last)\n      return\n', '        pass\n      return\n')
@pytest.mark.full
def test_a_failing_evaluation_costs_no_checkpoint(rich_store, tmp_path, monkeypatch, one_device):
  """Nor does a kill in the evaluation, after which nothing can be rescued."""
  config, written = short(rich_store), []
  train_loop.run(config, str(tmp_path / 'straight'))

  def fail(sets, variables, step, last, rest):
    written.append((tmp_path / f'run/checkpoints/{step}/manifest.json').exists())
    raise ValueError('of ours')

  with monkeypatch.context() as patch:
    patch.setattr(evaluation, 'run_due', fail)
    patch.setattr(evaluation, 'due', lambda sets, step, last: last)
    with pytest.raises(ValueError, match='of ours'):
      train_loop.run(config, str(tmp_path / 'run'))
  assert written == [True]
  assert (tmp_path / 'run' / 'checkpoints' / '4' / 'manifest.json').exists()
  train_loop.run(config, str(tmp_path / 'run'))
  assert lines(tmp_path / 'run')[-1] == lines(tmp_path / 'straight')[-1]
  assert (tmp_path / 'run' / 'checkpoints' / '4' / 'scores.json').exists()


@pytest.mark.full
@mutation("interval.Interval(_of_phases(run, meta.get('interval')))", 'interval.Interval()')
def test_a_resume_between_two_logs_logs_the_same_bits(
  rich_store, tmp_path, monkeypatch, one_device
):
  """xlm: three phases take turns; the checkpoint of step 2 lies before the log of step 3."""
  config = short(rich_store, 'xlm')
  train_loop.run(config, str(tmp_path / 'straight'))
  take = evaluation.due

  def cut_off(sets, step, last):
    if step == 2:
      raise RuntimeError('cut off')
    return take(sets, step, last)

  with monkeypatch.context() as patch:
    patch.setattr(evaluation, 'due', cut_off)
    with pytest.raises(RuntimeError, match='cut off'):
      train_loop.run(config, str(tmp_path / 'run'))
  train_loop.run(config, str(tmp_path / 'run'))
  assert exact(tmp_path / 'run') == exact(tmp_path / 'straight')
  found = lines(tmp_path / 'run')
  assert found[-2]['tokens/total'] == sum(x['tokens/real'] for x in found if 'loss' in x)
  assert {'clm/mlm', 'tlm/mlm_accuracy'} <= set(found[1])


@pytest.mark.full
@mutation('_record.close)\n', '_record.close)\n    resume.claim_workdir(workdir, config, {})\n')
def test_a_corrected_config_starts_where_another_one_failed(
  rich_store, tmp_path, monkeypatch, one_device
):
  def out_of_memory(phase, state, batch):
    raise RuntimeError('RESOURCE_EXHAUSTED')

  with monkeypatch.context() as patch:
    patch.setattr(Phase, 'train', out_of_memory)
    with pytest.raises(RuntimeError, match='EXHAUSTED'):
      train_loop.run(short(rich_store, **{'seed': 5}), str(tmp_path))
  assert not (tmp_path / 'config.json').exists()
  train_loop.run(short(rich_store), str(tmp_path))
  assert json.loads((tmp_path / 'config.json').read_text())['config']['model']['vocab_size'] == 211
