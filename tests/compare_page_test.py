"""The page of a comparison, from results of runs that never were."""

import json
import math
import pathlib
import re
import statistics
from xml.etree import ElementTree

import numpy as np
import pytest
from mutation import mutation

from bertjax.checkpoint import resume
from bertjax.comparison import arms, page, results, runs, svg, tables, tasks
from bertjax.comparison.results import Result
from bertjax.errors import UserError


def result(home: pathlib.Path, arm: str, peak: str, seed: int, values, finished=True) -> Result:
  metric = 'eval/mlm_masked' if arm != 'gpt' else 'eval/lm'
  config = {'best.metric': metric, 'best.mode': 'min', 'batch_size': 8 + 8 * (arm == 'gpt')}
  config |= {'total_steps': 10 * len(values), 'optimizer.b1': 0.9}
  rows = []
  for i, value in enumerate(values, 1):
    spent = {'flops/total': 1e9 * i, 'tokens/total': 500.0 * i}
    seconds = {'time/compute': 2.0 + seed, 'time/input': 0.5, 'time/other': 0.5, 'time/eval': 99.0}
    judged = {'step': 10 * i, metric: value, 'eval/unigram_entropy': 6.25}
    judged['eval/rtd_auc_unigram'] = 0.55
    rows += [dict(step=10 * i, loss=1.0, **spent, **seconds), judged]
  directory = home / arm / f'peak={peak},seed={seed}'
  return Result(directory, arm, peak, seed, config, rows, finished)


@pytest.fixture
def found(tmp_path) -> list[Result]:
  return [
    result(tmp_path, 'a<b>&|', '0.001', 0, [5.0, 4.0, 3.5]),
    result(tmp_path, 'a<b>&|', '0.001', 1, [5.5, 4.5, 3.0]),
    result(tmp_path, 'a<b>&|', '0.001', 2, [6.5, 3.5, 3.25]),
    result(tmp_path, 'a<b>&|', '0.002', 0, [5.0, 4.0, 2.75]),
    result(tmp_path, 'a<b>&|', '0.002', 1, [5.0, 4.0, 1.0], finished=False),
    *(result(tmp_path, 'a<b>&|', '0.004', seed, [5.0, 4.5, 3.75]) for seed in range(3)),
    result(tmp_path, 'gpt', '0.003', 0, [7.0, 6.0]),
  ]


@mutation("done[0].config['best.mode']", "of_arm[0].config['best.mode']")
@mutation("best = max if mode == 'max' else min", 'best = max')
@mutation('if len(same) == most]', 'if same]')
def test_the_rate_with_the_best_median_is_chosen(found):
  assert [r.seed for r in results.chosen(found[:8])] == [0, 1, 2]
  assert {r.peak for r in results.chosen(found[:8])} == {'0.001'}  # at 0.002 a seed was lost
  lost = found[4]._replace(config={}, rows=[])  # it ended before its first step
  assert results.chosen([lost, *found[:8]]) == found[:3]
  assert results.chosen([found[4]]) == []  # it did not finish


@mutation('_finite(found[-1]) if found', 'found[-1] if found')
def test_a_run_that_is_lost_at_its_end_has_no_score_of_before(found):
  lost = found[0]._replace(rows=[*found[0].rows, {'step': 40, 'eval/mlm_masked': math.nan}])
  assert lost.last('eval/mlm_masked') is None and results.chosen([lost, found[1]]) == [found[1]]
  assert [run.lost for run in (lost, found[1], found[4])] == [True, False, True]


@mutation('for part in TRAINING)\n      value', "for part in ('compute',))\n      value")
def test_a_curve_is_by_what_was_spent_until_then(found):
  assert found[1].curve('eval/mlm_masked') == [
    (1e9, 500.0, 4.0, 5.5), (2e9, 1000.0, 8.0, 4.5), (3e9, 1500.0, 12.0, 3.0),
  ]  # fmt: skip
  assert found[4].last('eval/mlm_masked') is None and found[0].last('eval/mlm_masked') == 3.5
  assert found[1].spent == (3e9, 1500.0, 12.0, 125.0)


@mutation("lambda text: text.replace('|', '\\\\|')", 'lambda text: text')
@mutation('said = html.escape\n', 'said = str\n')
@mutation('places.append(svg.Place(x, min(values),', 'places.append(svg.Place(x, max(values),')
def test_the_page_is_one_whole_file_with_the_numbers_of_the_runs(found, tmp_path):
  page.write(found, tmp_path, 'python -m bertjax.compare --arms=x')
  markdown, whole = tmp_path / 'report.md', tmp_path / 'report.html'
  text = whole.read_text()
  root = ElementTree.fromstring(re.sub('<!doctype html>|<meta [^>]*>', '', text))
  said = lambda *tags: [''.join(each.itertext()) for each in root.iter() if each.tag in tags]
  names = {name for each in root.iter() for name in each.attrib}
  assert not names & {'src', 'href', 'srcset', 'onclick'} and 'http' not in text
  assert 'import' not in text and 'url(' not in text and not said('script')
  seeds = np.array([[5.0, 5.5, 6.5], [4.0, 4.5, 3.5], [3.5, 3.0, 3.25]])
  expected = [
    f'a<b>&|: {statistics.median(v):.4f} ({min(v):.4f} to {max(v):.4f}) at {x:.3g} FLOPs'
    for v, x in zip(seeds.tolist(), (1e9, 2e9, 3e9), strict=True)
  ]
  hover = [title for title in said('title') if title.endswith('FLOPs')]
  assert hover[:3] == expected and hover[3].startswith('gpt: 7.0000')
  cells = said('td')
  own = cells.index('mlm_masked 3.2500 [3.0000, 3.5000]')
  assert cells[own + 1] == '6.2500 [6.2500, 6.2500]' and 'FAILED' in cells
  numbers = [json.loads(line) for line in (tmp_path / 'report.jsonl').read_text().splitlines()]
  assert len(numbers) == len(found) and numbers[1]['seed'] == 1 and not numbers[4]['finished']
  assert numbers[1]['curve'][2] == dict(flops=3e9, tokens=1500.0, seconds=12.0, value=3.0)
  rows = [line for line in markdown.read_text().splitlines() if line.startswith('| ')]
  split = [cell.replace('\\|', '|') for row in rows for cell in re.split(r'(?<!\\)\|', row)[1:-1]]
  assert [cell.strip() for cell in split] == [cell.strip() for cell in said('td', 'th')]


@mutation('if name in OF_WORDS else', 'if name else')
def test_a_unigram_is_of_the_score_that_it_stands_beside(found):
  of = lambda metric: found[0]._replace(config={'best.metric': metric}).unigram
  assert [of(f'eval/{name}') for name in ('mlm_masked', 'rtd_auc', 'rtd')] == [6.25, 0.55, None]


@mutation("return metric.rpartition('/')[2]", "return metric.removeprefix('eval/')")
def test_the_same_score_of_other_phases_is_in_one_chart(found, tmp_path):
  config = found[0].config | {'best.metric': 'eval/turn/mlm_masked'}
  named = lambda row: {key.replace('eval/', 'eval/turn/'): value for key, value in row.items()}
  rows = [named(row) for row in found[0].rows]
  page.write([*found, found[0]._replace(arm='other', config=config, rows=rows)], tmp_path, '')
  charts = re.findall('aria-label="(.*?)"', (tmp_path / 'report.html').read_text())
  assert charts == ['mlm_masked'] * 3 + ['lm'] * 3  # by FLOPs, tokens and seconds


def test_what_was_not_equal_is_said(found):
  unequal = tables.tables_of(found)[-1]
  assert unequal.rows == [['batch_size', '8', '16'], ['total_steps', '30', '20']]


def tuned(run: Result, peak: str, value: float | None) -> None:
  """Writes what a fine-tuning of a run leaves: one that failed if the value is None."""
  home = run.directory / f'tuned,peak={peak}'
  (home / 'checkpoints' / ('10' if value is not None else '5')).mkdir(parents=True)
  best = dict(metric='eval/dev/accuracy', mode='max')
  config = dict(total_steps=10, best=best, evals={})
  (home / 'config.json').write_text(json.dumps(dict(format=resume.FORMAT, config=config)))
  rows = [{'step': 5, 'eval/dev/accuracy': 0.99}]
  rows += [{'step': 10, 'eval/dev/accuracy': value, 'eval/dev/majority': 0.5}] if value else []
  (home / 'metrics.jsonl').write_text(''.join(f'{json.dumps(row)}\n' for row in rows))
  home.with_name(f'{home.name}.log').write_text('')


@mutation('at_best_rate(done, lambda one: one.value, done[0].mode) if done else []', 'done')
@mutation('if whole and metric in row', 'if metric in row')
@mutation('one.directory for one in ones if one.value is None', 'one.directory for one in []')
def test_of_rates_of_fine_tuning_the_best_is_taken_for_each_arm(found, tmp_path):
  for run, *values in zip(
    found, (0.7, 0.9, 0.5), (0.75, 0.8, 0.85), (0.9, 0.9, None), strict=False
  ):
    for peak, value in zip(('3e-4', '1e-3', '3e-3'), values, strict=True):
      tuned(run, peak, value)
  page.write(found, tmp_path, '')
  first = json.loads((tmp_path / 'report.jsonl').read_text().splitlines()[0])
  assert [one['value'] for one in first['fine_tuned']] == [0.75, 0.9, 0.7]
  scores, _, rates, _ = tables.tables_of(found)
  at = scores.head.index('fine-tuned eval/dev/accuracy (majority 0.5000)')
  assert [row[at] for row in scores.rows] == ['0.8000 [0.7500, 0.8500]', '-']
  assert [row[1:] for row in rates.rows if 'fine-tuned' in row[0]] == [
    ['1e-3', 'accuracy', '0.8000 [0.7500, 0.8500]', '3 of 3', '', 'taken'],
    ['3e-3', 'accuracy', '0.9000 [0.9000, 0.9000]', '2 of 3', 'FAILED', ''],
    ['3e-4', 'accuracy', '0.7000 [0.5000, 0.9000]', '3 of 3', '', ''],
  ]


@mutation('np.mean(difference_n > 0)', 'np.mean(difference_n >= 0)')
def test_a_tie_of_a_minimal_pair_is_wrong():
  found = tasks.judged([(-3.0, -4.0), (-4.0, -4.0), (-5.0, -4.0), (-1.0, -1.5)])
  assert found == dict(minimal_pairs=0.5, minimal_pairs_ties=0.25)


@mutation('own_n > cosine_nn.max(1)', 'own_n >= cosine_nn.max(1)')
@mutation('vectors.normalized(behind_nD)', 'behind_nD')
def test_a_sentence_finds_the_next_one_if_no_other_is_as_near():
  first = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
  behind = np.array([[3.0, 0.1], [0.0, 1.0], [9.0, 9.1]])
  assert tasks.retrieved(first, behind) == 1.0
  assert tasks.retrieved(first, np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])) == 1 / 3  # two ties


@mutation('said[::2], said[1::2]', 'said[:-1], said[1:]')
def test_neighbours_are_of_one_line_and_none_is_there_twice(tmp_path):
  said = [f'The {word} book was not so very bad.' for word in 'old new red odd big'.split()]
  (tmp_path / 'text.txt').write_text(f'{" ".join(said)}\nToo short. {said[0]}\n{said[4]}\n')
  made = tasks.make('', (), '', str(tmp_path / 'text.txt'))
  assert made.neighbours == [(said[0], said[1]), (said[2], said[3])]


@mutation(
  'np.linspace(0, len(found) - 1, min(len(found), NEIGHBOURS), dtype=int)', 'range(NEIGHBOURS)'
)
def test_neighbours_are_as_many_as_may_be_and_from_all_of_the_text(tmp_path):
  line = 'The number {0} is not so very bad. The number {0} is not so very good.'
  lines = [line.format(number) for number in range(tasks.NEIGHBOURS + 1)]
  (tmp_path / 'text.txt').write_text('\n'.join(lines))
  found = tasks.make('', (), '', str(tmp_path / 'text.txt')).neighbours
  assert len({*found}) == tasks.NEIGHBOURS and str(tasks.NEIGHBOURS) in found[-1][0]


@mutation('if len(tasks.neighbours) < 2:', 'if False:')
def test_one_pair_alone_is_no_retrieval():
  with pytest.raises(UserError, match='has one pair of sentences'):
    tasks._nearest(None, tasks.Tasks(neighbours=[('a', 'b')]))


@mutation('if run and run.job else resume.required', 'if True else resume.required')
def test_what_is_no_run_has_no_results(tmp_path):
  with pytest.raises(UserError, match='config.json: expected the config of a run, in its workdir'):
    results.read(tmp_path)


def test_tasks_whose_files_lack_labels_are_refused(tmp_path):
  write = lambda name, rows: (tmp_path / name).write_text(
    ''.join(json.dumps(r) + '\n' for r in rows)
  )
  write('pairs.jsonl', [dict(sentence_good='a b', sentence_bad='b a')])
  assert tasks.make('', (), str(tmp_path / 'pairs.jsonl')).pairs == [('a b', 'b a')]
  write('lacking.jsonl', [dict(sentence_good='a b')])
  with pytest.raises(ValueError, match='sentence_bad'):
    tasks.make('', (), str(tmp_path / 'lacking.jsonl'))
  write('train.jsonl', [dict(text='a', label='x'), dict(text='b', label='y')])
  write('dev.jsonl', [dict(text='a', label='z')])
  keys = [f'data.{key}={tmp_path}/{key}.jsonl' for key in ('train', 'dev')]
  with pytest.raises(ValueError, match="dev.jsonl, line 1: expected one of .*got 'z'"):
    tasks.make('configs/finetune/text.py', [*keys, "data.task.classes=('x','y')"], '')
  write('dev.jsonl', [dict(text='a', label='x')])
  pairs = str(tmp_path / 'pairs.jsonl')
  made = tasks.make('configs/finetune/text.py', [*keys, "data.task.classes=('x','y')"], pairs)
  before = made.texts
  write('dev.jsonl', [dict(text='a', label='y')])
  assert {k for k, sha256 in made.texts.items() if before[k] != sha256} == {
    'sha256 of --finetune, data.dev'
  }
  assert len(before) == 3 and made._replace(pairs=[('a', 'b')]).texts != made.texts
  text = arms.Text('text.txt', '', 'wordpiece:600')
  bert, gpt, t5 = arms.parse('bert,gpt,t5', 'test', text, [])
  flag = f'--config.evals.linear_probe.dev={tmp_path}/dev.jsonl'
  assert made.probed and all(flag in made.flags(arm) for arm in (bert, gpt, t5))


@mutation('PEAK: peak, ', '')
@mutation("schedule.peak * rate:.6g}'", "schedule.peak:.6g}'")
def test_each_rate_of_fine_tuning_is_a_run_of_its_own(tmp_path):
  for key in ('train', 'dev'):
    (tmp_path / f'{key}.jsonl').write_text('{"text": "a", "label": "x"}\n')
  keys = [f'data.{key}={tmp_path}/{key}.jsonl' for key in ('train', 'dev')]
  keys += ["data.task.classes=('x','y')", 'optimizer.schedule.peak=1e-3']
  made = tasks.make('configs/finetune/text.py', keys, '', rates=[0.3, 1.0])
  low, high = made.tuning(runs.Run('a', tmp_path / 'run', [], 7, 'a'))
  assert low.directory == tmp_path / 'run/tuned,peak=0.0003' and low.name != high.name
  own = [flag for flag in low.flags if 'peak' in flag]
  assert own == ['--config.optimizer.schedule.peak=0.0003']
  assert {'--config.seed=7', f'--config.init_from={tmp_path}/run'} <= {*high.flags}


def test_ticks_are_few_and_round():
  for low, high in ((0, 1), (2.3, 2.9), (0, 3e13), (-0.02, 0.71), (6.9, 7000)):
    found = svg.ticks(low, high)
    assert 2 <= len(found) <= 7 and all(low <= x <= high for x in found)
  assert svg.ticks(0, 10) == [0, 2, 4, 6, 8, 10] and svg.short(2.5e13) == '25T'
