"""A grid of runs: its points, what is due, and the table."""

import json
import math
import pathlib
import subprocess
import sys

import finetune_runs
import forks
import pytest
import review_files
from mutation import mutation
from processes import ROOT, command, environment

from bertjax.checkpoint import resume
from bertjax.config import sections
from bertjax.errors import UserError
from bertjax.launch import grid as grids
from configs import bert


def config():
  found = bert.get_config('test')
  sections.complete(found)
  return found


def test_points_of_a_grid():
  found = grids.points(['optimizer.schedule.peak=1e-4,2e-4', 'config.batch_size=8,16'], config())
  assert found == [
    {'optimizer.schedule.peak': peak, 'batch_size': size}
    for peak in ('1e-4', '2e-4')
    for size in ('8', '16')
  ]
  assert grids.points([], config()) == [{}]
  axis = "optimizer.freeze=(('a,b', True),),()"
  assert [p['optimizer.freeze'] for p in grids.points([axis], config())] == [
    "(('a,b', True),)", '()',
  ]  # fmt: skip


@pytest.mark.parametrize(
  'grid, message',
  [
    (['batch_size'], 'KEY=VALUE'),
    (['batch_size=8,'], 'KEY=VALUE'),
    (['optimizer.schedule.peek=1'], 'peak'),
    (['batch_size.x=1'], 'no keys below'),
    (['evals.held_out.data.mask.rate=.3'], 'config.evals.held_out.data has no keys below it'),
    (['seed=1,2'], '--seeds'),
    (['batch_size=8', 'batch_size=16'], 'twice'),
    (['batch_size=8,8'], 'twice'),
    (['optimizer.schedule.peak=1e-3,0.001'], 'twice'),
    (['batch_size=0'], 'config.batch_size'),
    (['optimizer.schedule.peak=a,1e-4'], "config.optimizer.schedule.peak: expected float, got 'a'"),
    (['model.dtype=float17'], 'config.model.dtype'),
    (['name=a/b,a b'], 'one directory'),
  ],
)
def test_a_grid_that_cannot_be_is_refused_before_any_run(grid, message):
  with pytest.raises(UserError, match=message):
    grids.jobs(config(), grid, 1)


@mutation("[*given, f'--config.seed={seed}']", '[*given]')
def test_jobs_are_seed_by_seed_with_their_flags():
  found = grids.jobs(config(), ['optimizer.schedule.peak=1e-4,2e-4'], 2)
  assert [job.name for job in found] == [
    'peak=1e-4,seed=0', 'peak=2e-4,seed=0', 'peak=1e-4,seed=1', 'peak=2e-4,seed=1',
  ]  # fmt: skip
  assert found[3].flags == ['--config.optimizer.schedule.peak=2e-4', '--config.seed=1']
  assert found[3].config.optimizer.schedule.peak == 2e-4 and found[3].config.seed == 1
  longer = grids.jobs(config(), ['total_steps=700'], 1)[0].config
  assert longer.optimizer.schedule.total_steps == 700  # references follow


def text_of(table) -> list[list[str]]:
  return list(map(list, zip(*(column.cells for column in table.columns), strict=True)))


@mutation("    if row['step'] == step:\n      found |= row\n", '    found |= row\n')
def test_the_table_has_median_spread_and_failures(tmp_path):
  found = grids.jobs(config(), ['optimizer.schedule.peak=1e-4,2e-4'], 3)
  steps = config().total_steps
  scores = {'peak=1e-4,seed=0': 3.0, 'peak=1e-4,seed=1': 1.0, 'peak=1e-4,seed=2': 2.5,
            'peak=2e-4,seed=0': 4.0}  # fmt: skip
  for name, score in scores.items():
    (tmp_path / name).mkdir()
    lines = [{'step': steps, 'loss': 1.0}, {'step': steps, 'eval/mlm': score}]
    (tmp_path / name / 'metrics.jsonl').write_text('\n'.join(map(json.dumps, lines)) + '\n{"st')
  (tmp_path / 'peak=2e-4,seed=1').mkdir()
  early = json.dumps({'step': 1, 'eval/mlm': 9.0}) + '\n'
  (tmp_path / 'peak=2e-4,seed=1' / 'metrics.jsonl').write_text(early)
  table = grids.table(found, ['peak=2e-4,seed=1'], tmp_path, 'eval/mlm')
  assert text_of(table) == [
    ['1e-4', '2.5000', '1.0000 to 3.0000', '3 of 3', '0'],
    ['2e-4', '4.0000', '4.0000 to 4.0000', '1 of 3', '1'],
  ]
  with pytest.raises(UserError, match='did you mean'):
    grids.table(found, [], tmp_path, 'eval/mml')


@mutation('each[accuracy] <= each[most]', 'each[accuracy] < each[most]')
@mutation('if not best or metric not in last:', 'if best or metric not in last:')
@mutation('if not math.isnan(row.get(metric, math.nan))', 'if metric in row')
def test_runs_that_stopped_early_or_learned_nothing(tmp_path):
  c = config()
  c.best.update(dict(metric='eval/dev/f1', mode='max'))
  c.total_steps = 40
  found = grids.jobs(c, [], 3)
  scores = [
    {10: (0.9, 0.9), 20: (0.7, 0.8)},  # stopped early
    {10: (math.nan, 0.6), 20: (0.5, 0.6), 30: (0.8, 0.6), 40: (0.6, 0.6)},
    {10: (0.2, 0.1), 20: (0.3, 0.1)},  # still running
  ]
  for job, steps in zip(found, scores, strict=True):
    run = tmp_path / job.name
    run.mkdir()
    rows = [
      {'step': step, 'eval/dev/f1': f1, 'eval/dev/accuracy': right, 'eval/dev/majority': 0.6}
      for step, (f1, right) in steps.items()
    ]
    (run / 'metrics.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
  resume.note_stopped(tmp_path / found[0].name, 20)
  row = lambda **more: text_of(grids.table(found, [], tmp_path, 'eval/dev/f1', **more))[0][1:]
  assert row() == ['0.6500', '0.6000 to 0.7000', '2 of 3', '0', '1']
  assert row(best=True) == ['0.8500', '0.8000 to 0.9000', '2 of 3', '0', '1']


@pytest.mark.full
@mutation("minutes', 'total_steps', 'eval_steps', '", "minutes', 'eval_steps', '")
def test_a_sweep_of_fine_tuning_knows_how_long_its_runs_are(tmp_path):
  review_files.write_two_words(tmp_path)
  run = finetune_runs.command(
    'text.py', tmp_path, tmp_path / 'runs', '--config.data.task.label=stars',
    "--config.data.task.classes=('bad','good')",
    '--grid=optimizer.schedule.peak=1e-2,0.0', '--seeds=2', '--config.epochs=4',
  )  # fmt: skip
  run[2] = 'bertjax.sweep'
  first = finetune_runs.run(run)
  assert '4 runs, 0 finished' in first and first.count('2 of 2') == 2, first
  assert '4 runs, 4 finished' in finetune_runs.run([*run, '--best'])


@mutation('  opening.check({job.name: ', '  str({job.name: ')
def test_a_point_that_cannot_work_is_refused_before_any_is_trained(rich_store, tmp_path):
  done = run_sweep(rich_store, tmp_path / 'runs', '--grid=length=64,600')
  assert done.returncode == 1 and 'model has room for' in done.stderr, done.stderr
  assert done.stderr.startswith('bertjax.sweep: peak=1e-4,length=600,seed=0: ')
  assert not list((tmp_path / 'runs').glob('*/*'))


def run_sweep(store, workdir: pathlib.Path, *more) -> subprocess.CompletedProcess:
  run = command(
    store, workdir, '--grid=optimizer.schedule.peak=1e-4,1e30', '--seeds=2',
    '--config.total_steps=6', '--config.log_steps=2', '--config.name=a;b', *more,
  )  # fmt: skip
  return forks.run('bertjax.sweep', *run[3:], cwd=ROOT, env=environment())


@pytest.mark.full
@mutation('return finished(str(run), config.total_steps) and metric', 'return False')
@mutation("choose(metric, sorted(scores.keys() - {'step'}), '--metric')", 'pass')
def test_a_sweep_trains_what_is_due_and_names_what_failed(rich_store, tmp_path):
  workdir = tmp_path / "a sweep's"
  planned = run_sweep(rich_store, workdir, '--dry_run')
  assert planned.returncode == 0 and planned.stdout.count('resumable') == 4, planned.stderr
  assert not workdir.exists()
  first = run_sweep(rich_store, workdir)
  assert first.returncode == 1, first.stdout + first.stderr
  assert '4 runs, 0 finished' in first.stdout and '2 of 2' in first.stdout
  assert 'failed: peak=1e30,seed=0' in first.stdout and 'failed: peak=1e30,seed=1' in first.stdout
  kept = (workdir / 'peak=1e-4,seed=1' / 'metrics.jsonl').stat().st_mtime_ns
  again = run_sweep(rich_store, workdir)
  assert '4 runs, 2 finished' in again.stdout and '2 of 2' in again.stdout
  assert (workdir / 'peak=1e-4,seed=1' / 'metrics.jsonl').stat().st_mtime_ns == kept
  unknown = run_sweep(rich_store, workdir, '--metric=eval/mlm_maskd')
  assert unknown.returncode == 1 and "did you mean 'eval/mlm_masked'" in unknown.stderr
  assert unknown.stdout.count('; output in') == 1  # the first run that is there has not got it
  other = run_sweep(rich_store, workdir, '--config.optimizer.b1=0.5')
  assert other.returncode == 1 and 'another config' in other.stderr


@mutation('  presets.choose_own(config, given, os.environ, begun)\n', '')
@mutation('choose_own(config, given, os.environ, begun)', 'choose_own(config, given, os.environ)')
def test_the_runs_of_a_sweep_have_the_preset_of_a_gpu_or_that_with_which_one_began(tmp_path):
  code = """
import pathlib
import sys
from bertjax.checkpoint import resume
from bertjax import sweep
from bertjax.config import presets, sections
from configs import bert
sweep.config_flags.get_override_values = lambda _: {}
presets.DRIVER, presets.importlib.util.find_spec = pathlib.Path('.'), lambda name: name
for there in (False, True):
  config, workdir = bert.get_config('test'), pathlib.Path(sys.argv[1])
  sections.complete(config)
  if there:
    (workdir / 'run' / 'checkpoints').mkdir(parents=True)
    resume.claim_workdir(workdir / 'run', config, {})
  sweep._choose_preset(config, workdir)
  sweep._settle(config, [])
  print([config.preset, config.model.dtype])
"""
  env = environment() | dict(JAX_PLATFORMS='', CUDA_VISIBLE_DEVICES='0')
  done = subprocess.run(
    [sys.executable, '-c', code, tmp_path], cwd=ROOT, env=env, text=True, capture_output=True,
    check=True,
  )  # fmt: skip
  assert done.stdout == "['gpu', 'bfloat16']\n['', 'float32']\n"


@pytest.mark.full
@mutation("k in ('dtype', 'remat')", 'k in ()')
@mutation('    if one_store:\n', '    if False:\n')
def test_a_sweep_of_text_with_a_preset_knows_its_runs_again(tmp_path):
  review_files.write_two_words(tmp_path)
  for name in ('train', 'valid'):
    (tmp_path / f'{name}.txt').write_text('fine dull fine\ndull fine\n\n' * 200)
  run = [
    sys.executable, '-m', 'bertjax.sweep', '--config=configs/bert.py:test',
    f'--workdir={tmp_path}/runs', '--grid=optimizer.schedule.peak=1e-4', '--config.preset=gpu',
    f'--config.data.input={tmp_path}/train.txt', f'--config.data.heldout={tmp_path}/valid.txt',
    f'--config.data.vocab={tmp_path}/vocab.txt', '--config.total_steps=10', '--config.length=32',
    '--config.batch_size=8', '--config.evals.held_out.batch_size=8',
    '--config.evals.held_out.examples=8', '--config.evals.pseudo_perplexity.rows=0',
  ]  # fmt: skip
  assert '1 run, 0 finished' in finetune_runs.run(run)
  assert '1 run, 1 finished' in finetune_runs.run(run)
