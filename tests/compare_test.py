"""Equal compute: arms, what a budget buys, and runs that several processes share."""

import contextlib
import io
import json
import pathlib
import signal
import subprocess
import sys
import time

import forks
import numpy as np
import pytest
from mutation import mutation
from processes import ROOT, environment
from rich.console import Console

from bertjax import sharding
from bertjax.checkpoint import resume
from bertjax.comparison import arms, budget, plan, runs
from bertjax.config import presets
from bertjax.errors import UserError
from bertjax.launch import grid
from bertjax.machine import locks
from bertjax.store.reader import open_store
from bertjax.tools.bench.parts import own_step
from bertjax.tools.preflight import checking

TEXT = arms.Text('text.txt', '', 'wordpiece:600')


def asked(given, budget_of=('flops', 1e12), text=TEXT, common=(), seeds=1):
  found = arms.parse(given, 'test', text, common)
  return plan.Asked(text, found, budget.Budget(*budget_of), (1.0,), seeds, dict(flops=1e12))


@mutation('point = keys((*common, *', 'point = keys((*common[:0], *')
def test_an_arm_is_a_recipe_with_keys_of_its_own():
  one, two = arms.parse(
    'roberta,modernbert:tiny[data.mask.rate=0.4,batch_size=8]', 'test', TEXT, ['length=32']
  )
  assert one.file == 'configs/roberta.py:test' and two.file == 'configs/modernbert.py:tiny'
  assert two.flags[1:] == [
    '--config.preset=', '--config.length=32', '--config.data.mask.rate=0.4',
    '--config.batch_size=8',
  ]  # fmt: skip
  assert (two.config.data.mask.rate, two.config.batch_size, one.config.length) == (0.4, 8, 32)
  assert two.config.data.train_vocab.size == 600
  assert one.store == arms.parse('xlm_r', 'test', TEXT, [])[0].store
  assert one.store != arms.parse('bert', 'test', TEXT, [])[0].store


@mutation('mask=dict(rate=0.15)', 'mask=dict(rate=0.4)', file='configs/arms/falling.py')
def test_the_arms_of_the_reference_page_mask_as_they_say():
  """docs/compare.md: how many of each row are hidden, phase by phase, and in the held-out rows."""
  folder = 'configs/arms/'
  given = (
    f'{folder}falling.py,{folder}clm_mlm.py,{folder}hybrid.py,{folder}rate.py[data.mask.rate=0.3]'
  )
  found = {}
  for arm in arms.parse(given, 'test', TEXT, []):
    config = _sized(arm)
    masks = [phase.config.data.mask for phase in checking.phases(config, None, None)]
    masks.append({**config.data.mask, **config.evals.held_out.data.get('mask', {})})
    found[pathlib.Path(arm.file).stem] = [m.get('rate', m.get('name')) for m in masks]
  assert found == {
    'falling': [0.4, 0.275, 0.15, 0.15],
    'clm_mlm': ['causal', 0.15, 0.15],
    'hybrid': ['causal', 0.15, 0.15],
    'rate': [0.3, 0.15],
  }


@pytest.mark.parametrize(
  'given, message',
  [
    ('berd', "--arms: expected one of albert, .*did you mean 'bert'"),
    ('bert:tiniest', "--arms=bert:tiniest: unknown size 'tiniest'"),
    ('bert[batch_size]', "expected KEY=VALUE, got 'batch_size'"),
    ('bert[batch_size=0]', 'config.batch_size'),
    ('bert(x)', "expected one of .*got 'bert\\(x\\)'"),
    ('bert,gpt,bert', "'bert' is there twice"),
    ('bert[name=a b],bert[name=a+b]', 'would lie in one directory'),
    ('bert[optimizer.schedule.peek=1]', "did you mean 'peak'"),
  ],
)
def test_arms_that_cannot_be_are_refused(given, message):
  with pytest.raises(UserError, match=message):
    arms.parse(given, 'test', TEXT, [])


def test_a_vocabulary_that_is_too_small_is_refused_by_the_flag_that_names_it():
  with pytest.raises(UserError, match='--vocab=wordpiece:200: expected a size of at least 300'):
    arms.parse('bert', 'test', TEXT._replace(vocab='wordpiece:200'), [])


@mutation('if arm.name not in lost]', 'if arm.name in lost]')
def test_arms_that_cannot_share_a_vocabulary_are_named_with_their_groups():
  arms.check_vocabulary(asked('bert,roberta,electra,gpt').arms, TEXT)
  with pytest.raises(UserError) as found:
    arms.check_vocabulary(asked('bert,xlnet').arms, TEXT)
  said = str(found.value)
  assert 'xlnet: plan' in said and 'no eod' in said and 'take --vocab=unigram:600' in said
  with pytest.raises(UserError) as found:
    arms.check_vocabulary(asked('bert,t5').arms, TEXT)
  said = str(found.value)
  assert '\n  t5: t5\n' in said and 'wordpiece: bert\n' in said and 'each group by itself' in said


@mutation('scale = config.batch_size / few.batch_size / count', 'scale = 1 / count')
@mutation('np.average(flops_n, weights=steps_n)', 'np.mean(flops_n)')
def test_steps_are_what_the_budget_buys_by_the_count_of_the_model():
  arm = asked('bert').arms[0]  # two phases: 9 of 10 steps with rows of a fourth
  found = budget.counted(arm, 600, None, '')
  first, second = sorted(checking.phases(_sized(arm), None, None), key=lambda p: p.config.length)
  flops = [own_step.flops(p.config, checking.batch_of(p.config)) for p in (first, second)]
  share = first.steps / (first.steps + second.steps)
  assert share == pytest.approx(0.9) and first.config.length * 4 == second.config.length
  assert found.step_bytes is None  # nothing is compiled before there is a store
  assert found.flops == pytest.approx(share * flops[0] + (1 - share) * flops[1], rel=0.15)
  assert budget.Budget('flops', 25.5 * found.flops).steps(found) == 25
  assert budget.Budget('tokens', 12.5 * found.tokens).steps(found) == 12
  with pytest.raises(UserError, match='buys 9 steps of bert.*at least'):
    budget.Budget('flops', 9.9 * found.flops).steps(found)


@mutation('ROWS = 2048', 'ROWS = 32')
def test_a_step_is_counted_on_as_many_rows_as_its_mean_takes(rich_store, monkeypatch):
  store, arm = open_store(rich_store), asked('roberta[batch_size=32]').arms[0]
  config = budget._phases(arm, store.vocabulary_size)[0].config
  own = budget._count(config, store, '')
  monkeypatch.setattr(budget, 'ROWS', 4096)
  assert own == pytest.approx(budget._count(config, store, ''), rel=0.01)


def _sized(arm):
  config = arm.config.copy_and_resolve_references()
  config.model.vocab_size = 600
  return config


@mutation('escape(arm.name)', 'arm.name')
def test_the_table_has_the_whole_name_of_an_arm():
  want = asked('bert,bert[batch_size=8]', seeds=2)._replace(rates=(0.5, 1.0))
  cost = budget.Cost('bert', 10, 10**9, 1e9, 100.0, 36.0)
  rows = [plan.Planned(arm, cost, 50, pathlib.Path('W/stores/abc/store')) for arm in want.arms]
  shown = io.StringIO()
  Console(file=shown, width=250).print(plan.table(want, rows, 'x'))
  two = next(line for line in shown.getvalue().splitlines() if 'bert[batch_size=8]' in line)
  cells = [cell.strip() for cell in two.split('│')]
  assert cells[5:12] == ['50', '5,000', '0', '5e-05, 0.0001', '4', '2.00', '8.00']
  assert '4.00 hours' in shown.getvalue()  # of 36 s, 50 steps and 4 runs, two times


@mutation('if abs(after', 'if False and abs(after')
def test_the_schedule_keeps_its_shape():
  arm = asked('gpt').arms[0]
  point = budget.point_of(arm, 500, 'STORE')
  assert (point['total_steps'], point['eval_steps']) == ('500', '50')
  assert not [key for key in point if 'warmup' in key]  # it follows the steps by itself
  fixed = asked('gpt[optimizer.schedule.warmup_steps=60000]').arms[0]  # a tenth of 600,000
  assert budget.point_of(fixed, 500, 'STORE')['optimizer.schedule.warmup_steps'] == '50'


def test_rates_and_seeds_share_a_program():
  """A rate and a seed are arguments of the compiled step, so the cache of programs has one."""
  arm = asked('roberta[batch_size=8,length=16]').arms[0]
  programs = set()
  for peak, seed in ((1e-3, 1), (4e-3, 2)):
    point = {'optimizer.schedule.peak': str(peak), 'seed': str(seed)}
    config = own_step.sized(grid.changed_by(arm.config, point, ''), 8, 16)
    assert (config.optimizer.schedule.peak, config.seed) == (peak, seed)
    lowered = own_step.lower(config, checking.batch_of(config), sharding.make_mesh(config.mesh))[0]
    programs.add(lowered.as_text())
  assert len(programs) == 1


@mutation('      find_sources(name)', '      pass')
def test_text_that_is_not_there_is_refused_before_anything_is_made(tmp_path):
  with pytest.raises(UserError, match="no file matches 'text.txt'"):
    plan.make(asked('bert'), tmp_path / 'runs', True)
  assert not (tmp_path / 'runs').exists()


@mutation('      asked.budget.steps(costs[arm.name])', '      pass')
def test_a_budget_that_is_too_small_is_refused_at_the_first_arm(tmp_path, monkeypatch):
  (tmp_path / 'text.txt').write_text('A text of some words.\n')
  counted = []
  count = lambda arm, *rest: counted.append(arm.name) or budget.Cost(arm.name, 1, 1, 1e9, 1.0, None)
  monkeypatch.setattr(budget, 'counted', count)
  few = asked('bert,bert[batch_size=8]')._replace(budget=budget.Budget('flops', 2e9))
  few = few._replace(text=few.text._replace(input=str(tmp_path / 'text.txt')))
  with pytest.raises(UserError, match='buys 2 steps of bert'):
    plan.make(few, tmp_path / 'runs', False)
  assert counted == ['bert']


@mutation('before.get(key, same.get(key)) != same', 'before.get(key) != same')
def test_a_workdir_of_another_comparison_is_refused(tmp_path):
  assert plan.check_workdir(tmp_path, dict(flops=1.0), []) == {}
  said = dict(format=plan.FORMAT, same=dict(flops=2.0), arms=dict(bert={}))
  (tmp_path / plan.NAME).write_text(json.dumps(said))
  with pytest.raises(UserError, match='flops: expected 2.0, got 1.0'):
    plan.check_workdir(tmp_path, dict(flops=1.0), [])
  assert plan.check_workdir(tmp_path, dict(flops=2.0), []) == dict(bert={})
  assert plan.check_workdir(tmp_path, {'flops': 2.0, 'sha256 of --pairs': 'a'}, [])
  with pytest.raises(UserError, match='flops: expected 2.0, got None'):
    plan.check_workdir(tmp_path, dict(tokens=2.0), [])
  (tmp_path / 'config.json').write_text('{}')
  with pytest.raises(UserError, match='holds a run'):
    plan.check_workdir(tmp_path, dict(flops=2.0), [])


@mutation('if differing := may_differ', 'if False and may_differ')
@mutation('presets.set_fields(config, point)', 'pass', file='bertjax/comparison/arms.py')
@mutation(
  'presets.choose_own(config, point, os.environ)', 'pass', file='bertjax/comparison/arms.py'
)
def test_an_arm_that_has_runs_by_another_config_is_refused(tmp_path, monkeypatch):
  """Its file was changed, or this machine has a GPU and so another preset."""
  (before,) = arms.parse('bert', 'test', TEXT, ['preset=cpu'])
  known = dict(bert=dict(config=resume.as_json(before.config)))
  (tmp_path / plan.NAME).write_text(json.dumps(dict(format=plan.FORMAT, same={}, arms=known)))
  assert plan.check_workdir(tmp_path, {}, [before]) == known
  (after,) = arms.parse('bert', 'test', TEXT, ['preset=cpu', 'batch_size=64'])
  with pytest.raises(UserError, match='runs of bert by another config:\n  config.batch_size: '):
    plan.check_workdir(tmp_path, {}, [after])
  monkeypatch.setattr(presets, 'DRIVER', tmp_path)
  monkeypatch.setattr(presets.importlib.util, 'find_spec', lambda name: name)
  monkeypatch.setenv('JAX_PLATFORMS', '')
  (there,) = arms.parse('bert', 'test', TEXT, [])
  assert '--config.preset=gpu' in there.flags and there.config.model.dtype == 'bfloat16'
  with pytest.raises(UserError, match="model.dtype: expected 'float32', got 'bfl"):
    plan.check_workdir(tmp_path, {}, [there])


@mutation('    write(known)  # before', '    pass  # before')
def test_a_comparison_that_is_broken_off_early_is_none_of_another_vocabulary(tmp_path, monkeypatch):
  (tmp_path / 'text.txt').write_text('one two three\n' * 50)
  few = asked('bert')
  few = few._replace(text=few.text._replace(input=str(tmp_path / 'text.txt')))
  monkeypatch.setattr(budget, 'counted', lambda arm, *_: budget.Cost(arm.name, 1, 1, 1e9, 1, 1.0))

  def broken_off(_, workdir):
    (workdir / 'vocab').mkdir(exist_ok=True)
    raise KeyboardInterrupt

  monkeypatch.setattr(plan, '_make_store', broken_off)
  given = dict(flops=1.0, vocab='wordpiece:600')
  with pytest.raises(KeyboardInterrupt):
    plan.make(few._replace(same=given), tmp_path / 'runs', True)
  with pytest.raises(UserError, match="\n  vocab: expected 'wordpiece:600', got 'bpe:600'"):
    plan.check_workdir(tmp_path / 'runs', given | dict(vocab='bpe:600'), [])
  assert plan.check_workdir(tmp_path / 'runs', given | dict(flops=2.0), []) == {}
  (tmp_path / 'runs' / 'vocab').rmdir()
  assert plan.check_workdir(tmp_path / 'runs', given | dict(vocab='bpe:600'), []) == {}


@mutation('weights=weights', 'weights=None')
def test_the_seconds_of_a_step_are_the_mean_over_its_phases(monkeypatch):
  (arm,) = arms.parse('bert', 'test', TEXT, ['total_steps=100'])
  of_phase = {phase.config.length: phase.steps for phase in budget._phases(arm, 600)}
  assert len(of_phase) == 2
  monkeypatch.setattr(budget.pool, 'apart', lambda _, config: float(config.length))
  cost = budget.timed(arm, 600, budget.Cost('bert', 1, 1, 1.0, 1.0, None))
  expected = sum(k * v for k, v in of_phase.items()) / sum(of_phase.values())
  assert cost.seconds == pytest.approx(expected)


@mutation('not done(run) and do(run)', 'do(run)')
def test_what_others_do_meanwhile_is_left_to_them(tmp_path, monkeypatch):
  monkeypatch.setattr(runs, 'POLL_S', 0.01)
  one, two, three = (runs.Run(name, tmp_path / name, [], 0, name) for name in 'abc')
  others, done = contextlib.ExitStack(), []
  others.enter_context(locks.tried(one.beside('lock')))

  def do(run):
    done.append(run.name)
    if run is two:  # those who held the first let go, unfinished, and have done the third
      others.close()
      done.append('c')
    return run is one

  is_done = lambda run: run.name in done
  assert runs.divided('', [one, two, three], is_done, do, is_done) == [one]
  assert done == ['b', 'c', 'a']


WORDS = 'a the fine dull film book was is not very long short old new good bad'.split()


def _command(folder, *more):
  rng = np.random.default_rng(0)
  for name, count in (('train', 600), ('valid', 40)):
    lines = [' '.join(rng.choice(WORDS, 12)) + ('\n' if i % 5 == 4 else '') for i in range(count)]
    (folder / f'{name}.txt').write_text('\n'.join(lines) + '\n')
  special = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
  (folder / 'vocab.txt').write_text('\n'.join([*special, *WORDS]) + '\n')
  return [
    sys.executable, '-m', 'bertjax.compare', '--arms=roberta,gpt', '--size=test', '--tokens=3e4',
    '--rates=1,1e30', '--seeds=1', f'--input={folder}/train.txt', f'--heldout={folder}/valid.txt',
    f'--vocab={folder}/vocab.txt', f'--workdir={folder}/runs', '--set=length=32',
    '--set=batch_size=8', '--set=evals.held_out.batch_size=8', '--set=evals.held_out.examples=16',
    *more,
  ]  # fmt: skip


@mutation('  opening.check({f', '  str({f')
@mutation('same={**asked.same, **judged.texts}', 'same=asked.same')
def test_an_arm_whose_text_lacks_documents_is_refused_before_any_is_trained(tmp_path):
  """What its step costs is known, so that none is compiled."""
  command = _command(tmp_path, '--arms=bert', f'--pairs={tmp_path}/pairs.jsonl')
  (tmp_path / 'pairs.jsonl').write_text('{"sentence_good": "a", "sentence_bad": "b"}\n')
  (tmp_path / 'valid.txt').write_text(' '.join(WORDS))
  text = arms.Text(*(f'{tmp_path}/{name}.txt' for name in ('train', 'valid', 'vocab')))
  common = [word.removeprefix('--set=') for word in command if word.startswith('--set=')]
  (arm,) = arms.parse('bert', 'test', text, common)
  cost = budget.Cost('bert', 1, 1, 1e9, 300.0, None)._asdict()
  known = dict(bert=dict(cost=cost, steps=100, config=resume.as_json(arm.config)))
  (tmp_path / 'runs').mkdir()
  record = tmp_path / 'runs' / plan.NAME
  record.write_text(json.dumps(dict(format=plan.FORMAT, same={}, arms=known)))
  done = forks.run(*command[2:], cwd=ROOT)
  assert 'bertjax.compare: --arms=bert: ' in done.stderr, done.stderr
  assert 'pairs need another document' in done.stderr
  assert done.returncode == 1 and not list((tmp_path / 'runs/runs').glob('*/*'))
  assert 'sha256 of --pairs' in json.loads(record.read_text())['same']


def _start(command):
  return subprocess.Popen(
    command, cwd=ROOT, env=environment(), text=True, stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
  )  # fmt: skip


@pytest.mark.full
@mutation('if ours and not done(run) and do(run)', 'if do(run)')
def test_a_comparison_is_killed_resumed_and_shared(tmp_path):
  command, runs = _command(tmp_path), tmp_path / 'runs'
  dry = subprocess.run([*command, '--dry_run'], cwd=ROOT, env=environment(), capture_output=True)
  assert dry.returncode == 0 and b'roberta' in dry.stdout and not runs.exists(), dry.stderr
  of = lambda arm: runs / 'runs' / arm / 'peak=0.0006,seed=0'
  # The text is encoded; a run is trained; that is finished, and the next one begins.
  for moment in (runs / 'stores', of('roberta') / 'metrics.jsonl', of('gpt') / 'config.json'):
    first = _start(command)
    while not moment.exists():
      assert first.poll() is None, first.communicate()[0]
      time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.communicate()
  both = [_start(command), _start(command)]
  said = [process.communicate()[0] for process in both]
  assert any('failed: roberta, peak=6e+26,seed=0' in each for each in said), said
  for arm in ('roberta', 'gpt'):
    log = of(arm).with_name('peak=0.0006,seed=0.log')
    assert log.read_text().count('Held out,') == 1  # the end of a run, once
  rows = (runs / 'report.md').read_text().splitlines()
  ends = [
    row.split(' | ')[-3:] for row in rows if row.startswith(('| roberta | 0', '| roberta | 6e'))
  ]
  assert ends == [['1 of 1', '', 'taken |'], ['0 of 1', 'FAILED', ' |']]
  other = _start([*command, '--set=length=64']).communicate()[0]
  assert 'holds another comparison' in other
