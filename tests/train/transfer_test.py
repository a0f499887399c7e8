"""A student learns a task from its teacher alone, on texts that nobody has labelled."""

import json

import finetune_runs
import numpy as np
import pytest
import review_files
from mutation import mutation

TURNED = ('--config.data.task.label=stars', "--config.data.task.classes=('good','bad')")
TASK = ('--config.data.task.label=stars', "--config.data.task.classes=('bad','good')")
FILES = review_files


@pytest.fixture(scope='module')
def taught(files, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('teacher')
  finetune_runs.run(finetune_runs.command('text.py', files, workdir, *TASK))
  return workdir


def command(files, taught, workdir, *more, task=TASK):
  return finetune_runs.command(
    'distill/kd.py', files, workdir, *task, f'--config.objective.teacher.source={taught}',
    '--config.objective.temperature=2', '--config.data.task.unlabelled', *more,
    f'--config.data.train={files}/texts.tsv',
  )  # fmt: skip


@mutation('float(given.soft) * float(given.temperature) ** 2', '0.0')
@pytest.mark.full
def test_a_student_without_labels_becomes_as_good_as_its_teacher(files, taught, tmp_path):
  alone = '--config.objective.hard=0.0'
  finetune_runs.run(command(files, taught, tmp_path, alone))
  best = max(finetune_runs.every(tmp_path, 'eval/dev/accuracy'))
  assert best >= finetune_runs.last(taught, 'eval/dev/accuracy') - 0.02 > 0.9
  assert not finetune_runs.every(tmp_path, 'label')


@mutation('zip(part.columns, found, strict=True)', 'zip(part.columns, found[::-1], strict=True)')
@pytest.mark.full
def test_soft_labels_of_a_file_teach_what_their_teacher_does(files, taught, tmp_path):
  soft = tmp_path / 'soft.jsonl'
  finetune_runs.said('predict', taught, f'--input={files}/train.tsv', f'--soft_labels={soft}')
  first = json.loads(soft.read_text().splitlines()[0])
  assert first.keys() == {'text', 'stars', 'soft_label'}
  assert first['soft_label'].keys() == {'bad', 'good'}
  teacher = f'--config.objective.teacher.source={taught}'
  more = (*TASK, '--config.epochs=2', '--config.objective.temperature=2')
  finetune_runs.run(finetune_runs.command('distill/kd.py', files, tmp_path / 'kd', *more, teacher))
  finetune_runs.run(
    finetune_runs.command(
      'distill/soft_labels.py', files, tmp_path / 'soft', *more, f'--config.data.train={soft}'
    )
  )
  losses = [finetune_runs.every(tmp_path / name, 'loss') for name in ('soft', 'kd')]
  assert len(losses[0]) == 25
  np.testing.assert_allclose(*losses, rtol=1e-4)
  finetune_runs.check_refused(
    finetune_runs.command('distill/soft_labels.py', files, tmp_path / 'none', *more),
    tmp_path / 'none', "config.data.train has no column 'soft_label'",
  )  # fmt: skip


@pytest.mark.full
@mutation('both if theirs[head] != ours[head]', 'both if len(theirs[head]) != len(ours[head])')
def test_a_teacher_of_classes_in_another_order_is_refused(files, taught, tmp_path):
  finetune_runs.check_refused(
    command(files, taught, tmp_path, '--config.objective.hard=0.0', task=TURNED), tmp_path,
    "tells ('bad', 'good') apart, in this order, the student ('good', 'bad')",
  )  # fmt: skip
