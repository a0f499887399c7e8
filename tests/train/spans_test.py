"""Questions on texts, from a file to the answers: learned, judged, asked and exported."""

import json
import random

import finetune_runs
import pytest
import toy_questions
from mutation import mutation
from processes import lines

EXACT = 'eval/dev/exact'
FILES = toy_questions


def command(files, workdir, *more, recipe='squad.py:v2'):
  return finetune_runs.command(
    recipe, files, workdir, '--config.length=32', '--config.data.task.stride=16',
    '--config.data.task.question=2', '--config.epochs=8', '--config.model.dropout=0.0',
    '--config.model.head_dropout=0.0', *more,
  )  # fmt: skip


@pytest.fixture(scope='module')
def straight(files, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('straight')
  return workdir, finetune_runs.run(command(files, workdir))


@pytest.mark.full
@mutation('for place in np.argsort(number_n)', 'for place in number_n')
def test_a_run_learns_to_answer_and_to_say_that_there_is_no_answer(straight):
  workdir, said = straight
  assert '8 epochs of 300 examples: 150 steps' in said
  found = [line for line in lines(workdir) if EXACT in line][-1]
  assert found[EXACT] > 0.9 and found['eval/dev/f1'] >= found[EXACT]
  assert found['eval/dev/no_answer'] > 0.9 and found['eval/dev/has_answer_exact'] > 0.9
  assert found['eval/dev/best_exact'] >= found[EXACT]


@pytest.mark.full
@mutation('(part.seconds, part.texts, **limits)', '(part.seconds, part.texts[::-1], **limits)')
@mutation('Row(window.id_n, second=self._second(window.type_n > 0))', 'Row(window.id_n)')
def test_predictions_are_as_right_as_the_evaluation_says(files, straight, tmp_path):
  workdir, _ = straight
  null_odds = finetune_runs.check_answers(workdir, files / 'dev.json', tmp_path)
  # The threshold that the evaluation found is the odds of one of the questions.
  threshold = finetune_runs.last(workdir, 'eval/dev/best_exact_threshold')
  nearest = min(null_odds.values(), key=lambda found: abs(found - threshold))
  assert nearest == pytest.approx(threshold, rel=1e-4)


@pytest.mark.full
def test_a_question_is_answered_from_the_command_line(files, straight):
  workdir, _ = straight
  text = f'{"the film was seen by " * 12}Zoe, at one'
  one, none = finetune_runs.predicted(
    workdir, '--question=who', '--question=who', f'--text={text}', '--text=the film'
  )
  assert (one['answer'], one['begin']) == ('Zoe', text.index('Zoe')) and one['probability'] > 0.5
  assert (none['answer'], none['begin']) == ('', None) and none['odds'] > 0
  ask = lambda *more: finetune_runs.said(
    'predict', workdir, '--question=who', f'--text={text}', *more
  )
  assert ask('--threshold=-1000').startswith("who\n  '' ") and "'Zoe'" in ask()


@pytest.mark.full
def test_other_languages_are_judged_at_the_end_and_at_the_best_step(tmp_path):
  files, workdir = toy_questions.write(tmp_path, unanswered=0), tmp_path / 'run'
  for name, count in (('de', 20), ('zh', 30)):
    asked = toy_questions.questions(random.Random(count), count, 0)
    (tmp_path / f'xquad.{name}.json').write_text(json.dumps(asked))
  finetune_runs.run([
    *command(files, workdir, recipe='squad.py:v1,de,zh'), '--config.epochs=2',
    *(f'--config.evals.{name}.file={tmp_path}/xquad.{name}.json' for name in ('de', 'zh')),
  ])  # fmt: skip
  judged = [line for line in lines(workdir) if EXACT in line]
  assert len(judged) == 2 and 'eval/de/f1' not in judged[0]
  for name, count in (('de', 20), ('zh', 30), ('dev', 60)):
    right = judged[-1][f'eval/{name}/exact'] * count
    assert right == pytest.approx(round(right))
  best = max(judged, key=lambda line: line['eval/dev/f1'])
  said = finetune_runs.said('main', workdir, '--evaluate', '--step=best')
  said = json.loads(said.splitlines()[-1])
  assert said['eval/dev/f1'] == pytest.approx(best['eval/dev/f1']) and 'eval/zh/f1' in said
