"""Early stopping: what counts as better, when a run ends, and that a killed one ends there too."""

import json
import math
import types

import finetune_runs
import pytest
import review_files
from ml_collections import ConfigDict
from mutation import mutation
from processes import lines

from bertjax.checkpoint import reading, resume
from bertjax.config.keys import Best
from bertjax.launch.resumable import finished
from bertjax.train import evaluation
from bertjax.train.watch.patience import Patience

NAN = math.nan
MAX, MIN = Best('eval/f1', 'max', 2), Best('eval/f1', 'min', 2)


def ends(best, scores, interrupted=()):
  """After which evaluation a run ends; where `interrupted`, it goes on from its last checkpoint."""
  patience = Patience(best)
  for step, score in enumerate(scores, 1):
    # A checkpoint comes before the evaluation.
    saved = json.loads(json.dumps(patience.saved(step, None)['patience']))
    for _ in range(3 if step in interrupted else 1):
      patience = Patience(best, saved)
      patience.look(step, {'eval/f1': score, 'eval/loss': 1.0})
    if patience.over:
      return step
  return None


@pytest.mark.parametrize(
  ('best', 'scores', 'after'),
  [
    (MAX, [0.1, 0.2, 0.3, 0.4], None),
    (MAX, [0.1, 0.5, 0.4, 0.5, 0.6], 4),  # as good is not better
    (MIN, [0.5, 0.4, 0.6, 0.3, 0.3, 0.3], 6),
    (MAX, [NAN, 0.1, NAN, NAN], 4),
    (MAX, [NAN, NAN], 2),
    (Best('eval/f1', 'max', 0), [0.5, 0.4, 0.3, 0.2], None),
    (Best('eval/f1', 'max'), [0.5, 0.4, 0.3, 0.2], None),
    (Best('eval/other', 'max', 1), [0.5, 0.4, 0.3], None),
  ],
)
@mutation('sign * score > sign * self._score', 'sign * score >= sign * self._score')
@mutation('self._score, self._worse = step, float(score), 0', 'self._score = step, float(score)')
@mutation('is_number and (self._score is None or', '(self._score is None or not is_number or')
def test_a_run_ends_when_so_many_evaluations_were_not_better(best, scores, after):
  assert ends(best, scores) == after
  assert ends(best, scores, interrupted=(1, 3, 4)) == after


@mutation('if score is None or step <= self._seen:', 'if score is None:')
def test_an_evaluation_that_was_counted_counts_once():
  """The checkpoint of an early stop, or of an error on the way, comes after the evaluation."""
  patience = Patience(MAX)
  for step, score in ((1, 0.5), (2, 0.4)):
    patience.look(step, {'eval/f1': score})
  again = Patience(MAX, patience.saved(2, None)['patience'])
  again.look(2, {'eval/f1': 0.4})
  assert not again.over
  again.look(3, {'eval/f1': 0.4})
  assert again.over
  assert again.said == (
    'eval/f1 was not above 0.5000, its value after step 1, in any of the last 2 evaluations '
    '(config.best.patience=2)'
  )


@mutation("saved.get('by', self._by) == self._by", 'True')
def test_a_run_that_is_judged_by_another_score_begins_to_count_anew():
  """A resume may have another config.best: the least loss is no accuracy to exceed."""
  by_loss = Patience(Best('eval/loss', 'min', 2))
  for step, score in ((1, 1.3), (2, 1.2), (3, 1.2)):
    by_loss.look(step, {'eval/loss': score, 'eval/f1': 0.1})
  again = Patience(MAX, json.loads(json.dumps(by_loss.saved(3, None)['patience'])))
  for step, score in ((3, 0.1), (4, 0.7), (5, 0.8), (6, 0.8)):
    again.look(step, {'eval/loss': 1.2, 'eval/f1': score})
    assert not again.over
  again.look(7, {'eval/f1': 0.8})
  assert again.over and 'above 0.8000, its value after step 5' in again.said


@mutation(' and not (rest and s.due(step, False))', '')
def test_what_waits_for_the_end_is_judged_at_an_early_one():
  ran = []

  def judged(name):
    run = lambda variables, step: ran.append(name) or types.SimpleNamespace(scores={}, table=None)
    return types.SimpleNamespace(run=run, names=())

  sets = tuple(evaluation.EvalSet(n, e, judged(n)) for n, e in (('dev', 5), ('end', 0)))
  evaluation.run_due(sets, {}, 10, False)
  evaluation.run_due(sets, {}, 10, True, rest=True)
  assert ran == ['dev', 'end']


@mutation('mean(run.config.best, {**(before or {}), **found})', 'mean(run.config.best, found)')
def test_a_mean_over_what_waits_for_the_end_is_there_at_an_early_one():
  best = ConfigDict(
    dict(metric='eval/dev/f1', mode='max', patience=2, mean=('eval/dev/f1', 'eval/end/f1'))
  )

  def judged(score):
    found = types.SimpleNamespace(scores=score, table=None)
    return types.SimpleNamespace(run=lambda variables, step: found, names=())

  sets = (('dev', 5, {'f1': 0.8}), ('end', 0, {'f1': 0.6}))
  made = [evaluation.EvalSet(n, e, judged(s)) for n, e, s in sets]
  run = types.SimpleNamespace(config=types.SimpleNamespace(best=best), evals=lambda done: made)
  progress = types.SimpleNamespace(note=print, show=print)
  first = evaluation.scores(run, 10, False, {}, progress)
  assert first == {'eval/dev/f1': 0.8}
  whole = evaluation.scores(run, 10, True, {}, progress, before=first)
  assert whole == {'eval/dev/f1': 0.8, 'eval/end/f1': 0.6, 'eval/mean': pytest.approx(0.7)}


@pytest.fixture(scope='module')
def files(tmp_path_factory):
  return review_files.write_two_words(tmp_path_factory.mktemp('files'))


def command(files, workdir, *more):
  return finetune_runs.command(
    'text.py', files, workdir, '--config.data.task.label=stars',
    "--config.data.task.classes=('bad','good')", '--config.best.patience=2',
    '--config.log_steps=5', *more,
  )  # fmt: skip


@pytest.fixture(scope='module')
def stopped(files, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('stopped')
  return workdir, finetune_runs.run(command(files, workdir))


@pytest.mark.full
@mutation('if self._patience.over:\n        break', 'if self._patience.over:\n        pass')
@mutation('if early and done % self._config.log_steps:', 'if False:')
@mutation('resume.last_step(workdir, total_steps or', '(total_steps or')
def test_a_run_ends_early_and_says_so(stopped):
  workdir, said = stopped
  scores = {x['step']: x['eval/dev/accuracy'] for x in lines(workdir) if 'eval/dev/accuracy' in x}
  end = max(scores)
  best = next(step for step, score in scores.items() if score == max(scores.values()))
  assert end < 40 and len([step for step in scores if step > best]) == 2
  assert f'Stopped early, after step {end} of 40: eval/dev/accuracy was not above' in said
  assert f'The run, stopped early, after step {end} of 40, is in' in said
  assert reading.newest_step(workdir) == end == resume.last_step(workdir, 40)
  assert finished(str(workdir)) and finished(str(workdir), 40)
  logged = [x['step'] for x in lines(workdir) if 'loss' in x]
  assert end % 5 and logged == [*range(5, end, 5), end]


@pytest.mark.full
def test_a_kill_and_a_resume_end_at_the_same_step(files, stopped, tmp_path):
  workdir, _ = stopped
  finetune_runs.check_kill_and_resume(command(files, tmp_path), workdir, tmp_path, 1)
  assert resume.last_step(tmp_path, 40) == resume.last_step(workdir, 40)


@pytest.mark.full
@mutation('(_CONFIG.value, _WORKDIR.value, _STEP.value, own)', '(_CONFIG.value, _WORKDIR.value)')
def test_an_earlier_checkpoint_and_the_best_are_judged(stopped):
  workdir, _ = stopped
  found = [x for x in lines(workdir) if 'eval/dev/accuracy' in x]
  for step, want in ((str(found[-2]['step']), found[-2]), ('best', found[-1])):
    said = finetune_runs.said('main', workdir, '--evaluate', f'--step={step}')
    said = json.loads(said.splitlines()[-1])
    assert said['eval/dev/accuracy'] == want['eval/dev/accuracy']
    assert step == 'best' or said['checkpoint'].endswith(f'/{step}')


@pytest.mark.full
@mutation('resume.note_stopped(self._workdir, None)', 'pass')
def test_the_same_command_stays_and_more_patience_goes_on(files, stopped):
  workdir, _ = stopped
  end = resume.last_step(workdir, 40)
  again = finetune_runs.run(command(files, workdir))
  assert f'Stopped early, after step {end} of 40' in again
  assert (
    '--step is for --evaluate' in finetune_runs.call(command(files, workdir, '--step=4')).stderr
  )
  more = finetune_runs.run(command(files, workdir, '--config.best.patience=99'))
  assert 'Stopped early' not in more
  assert lines(workdir)[-1]['step'] == 40 and resume.last_step(workdir, 40) == 40
