"""Runs on several tasks, from files to scores: used, exported, killed, on four devices."""

import json

import finetune_runs
import pytest
import task_files
from mutation import mutation
from processes import lines

pytestmark = pytest.mark.full
NAMES = ('stars', 'points', 'names')
FILES = task_files


def command(files, workdir, *more, names=NAMES):
  return task_files.command(files, workdir, *more, names=names)


@pytest.fixture(scope='module')
def straight(files, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('straight')
  return workdir, finetune_runs.run(command(files, workdir))


def ask(workdir, *more):
  return finetune_runs.use('predict', workdir, *more)


@mutation('(sum(n / batch for n, batch in facts.examples))', '(counts[0][0] / counts[0][1])')
def test_one_encoder_learns_every_task(straight):
  workdir, said = straight
  assert '6 epochs of 342 examples: 129 steps' in said  # 150 + 64 + 128, by batches of 16
  found = [x for x in lines(workdir) if 'eval/mean' in x]
  assert [x['step'] for x in found] == [22, 44, 66, 88, 110, 129]
  last = found[-1]
  known = [last[f'eval/{x}'] for x in ('stars/dev/accuracy', 'points/dev/spearman', 'names/dev/f1')]
  assert last['eval/mean'] == pytest.approx(sum(known) / 3)
  assert last['eval/stars/dev/accuracy'] > 0.9 and last['eval/names/dev/f1'] > 0.8


@mutation('[TASKS][task]', '[TASKS][sorted(params[TASKS])[0]], **params[TASKS]["points"]')
def test_each_task_is_predicted_as_it_was_judged(files, straight):
  workdir, _ = straight
  predicted = lambda name: [
    each['label']
    for each in finetune_runs.predicted(
      workdir, f'--task={name}', f'--input={files}/{name}/dev.tsv'
    )
  ]
  found = predicted('stars')
  want = [line.split('\t')[0] for line in (files / 'stars/dev.tsv').read_text().splitlines()[1:]]
  right = sum(x == y for x, y in zip(found, want, strict=True)) / len(want)
  assert right == pytest.approx(finetune_runs.last(workdir, 'eval/stars/dev/accuracy'))
  found = predicted('points')
  lines_ = (files / 'points/dev.tsv').read_text().splitlines()[1:]
  errors = [(x - float(y.split('\t')[2])) ** 2 for x, y in zip(found, lines_, strict=True)]
  want = finetune_runs.last(workdir, 'eval/points/dev/loss')
  assert sum(errors) / len(errors) == pytest.approx(want, rel=1e-4)
  assert 'anna\tB-PER' in ask(workdir, '--task=names', '--text=anna sees oslo').stdout


def test_without_a_task_the_encoder_alone_is_used(straight, tmp_path):
  workdir, _ = straight
  said = 'expected --task, one of names, points, stars'
  assert said in ask(workdir, '--text=a').stderr
  assert "did you mean 'stars'" in ask(workdir, '--task=star', '--text=a').stderr
  convert = finetune_runs.use('convert', workdir, '--to=hf', f'--output={tmp_path}/hf')
  assert said in convert.stderr and not (tmp_path / 'hf').exists()
  (tmp_path / 'in.txt').write_text('the film\n')
  finetune_runs.said('embed', workdir, f'--input={tmp_path}/in.txt', f'--output={tmp_path}/out.npy')


def test_each_task_is_exported_to_its_class(straight, tmp_path):
  """Which the export compares with the run's own head before it is left."""
  workdir, _ = straight
  for name, kind in (('stars', 'SequenceClassification'), ('names', 'TokenClassification')):
    finetune_runs.exported(workdir, tmp_path / name, f'--task={name}', '--step=best')
    config = json.loads((tmp_path / name / 'config.json').read_text())
    assert config['architectures'] == [f'BertFor{kind}']


@mutation('params=task_heads.together(new)', 'params=dict(new, tasks=variables["params"]["tasks"])')
def test_a_run_begins_with_another_and_its_heads_of_one_name(files, straight, tmp_path):
  workdir, _ = straight
  begin = (f'--config.init_from={workdir}', '--config.data.vocab=', '--config.epochs=0')
  more = (*begin, '--config.total_steps=1', '--config.optimizer.schedule.peak=0.0')
  names = ('stars', 'points')
  said = finetune_runs.run(command(files, tmp_path / 'many', *more, names=names))
  assert 'Left out of' in said and 'tasks/names' in said and 'Made anew' not in said
  for score in ('eval/stars/dev/loss', 'eval/points/dev/loss'):
    want = finetune_runs.last(workdir, score)
    assert finetune_runs.last(tmp_path / 'many', score) == pytest.approx(want, rel=1e-4)
  single = finetune_runs.command(
    'text.py', files / 'stars', tmp_path / 'one', '--config.data.task.label=stars',
    "--config.data.task.classes=('bad','good')", *more,
  )  # fmt: skip
  said = finetune_runs.run(single)
  assert 'has none of them: label' in said and 'tasks/names, tasks/points, tasks/stars' in said


@mutation('if line.drawn:', 'if False:', file='bertjax/sources/head_classes.py')
@mutation('differs = lambda key: key in classes or', 'differs = lambda key:')
def test_the_head_of_a_task_with_other_classes_is_made_anew(files, straight, tmp_path):
  workdir, _ = straight
  more = (f'--config.init_from={workdir}', '--config.data.vocab=', '--config.total_steps=1')
  whole = command(files, tmp_path, *more, '--config.epochs=0', names=('stars', 'points'))
  said = finetune_runs.run([flag.replace("('bad', 'good')", "('good','bad')") for flag in whole])
  assert 'has them for other classes: tasks/stars\n' in said


def test_a_teacher_of_several_tasks_is_refused(files, straight, tmp_path):
  workdir, _ = straight
  single = finetune_runs.command(
    'distill/kd.py', files / 'stars', tmp_path, '--config.data.task.label=stars',
    "--config.data.task.classes=('bad','good')", f'--config.objective.teacher.source={workdir}',
    '--config.data.vocab=',
  )  # fmt: skip
  finetune_runs.check_refused(single, tmp_path, 'heads of several tasks, names, points, stars')


@mutation("key in ('total_steps', 'eval_steps', 'checkpoint_steps'):", "key in ('total_steps',):")
def test_a_kill_and_a_resume_change_no_bit(files, straight, tmp_path):
  workdir, _ = straight
  said = finetune_runs.check_kill_and_resume(command(files, tmp_path), workdir, tmp_path, 30)
  assert 'Resuming after step 22' in said


def test_four_devices_learn_the_same(files, straight, tmp_path):
  workdir, _ = straight
  finetune_runs.run(command(files, tmp_path), devices=4)
  first = lambda path: [x['loss'] for x in lines(path) if 'loss' in x][:20]  # sums round apart
  assert first(tmp_path) == pytest.approx(first(workdir), rel=1e-4)
