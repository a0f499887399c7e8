"""Trains a grid of configs, prints one table: python -m bertjax.sweep

  python -m bertjax.sweep --config=configs/bert.py:tiny --workdir=runs/rates --seeds=3 \
      --grid='optimizer.schedule.peak=1e-3,2e-3' --grid='batch_size=16,32' --config.data.store=STORE

Each run is `bertjax.main` in WORKDIR/NAME, one after the other, its output in WORKDIR/NAME.log. The
same command goes on where it was stopped, runs what failed again and skips what is finished. Text
becomes a store once, for all runs, unless the grid is over what the store is made of.
"""

import os
import pathlib
import shlex
import sys
from collections.abc import Collection, Sequence
from typing import Any

from absl import flags
from ml_collections import config_flags
from rich.console import Console

from bertjax.config import command_line, presets
from bertjax.config.arguments import without_flags
from bertjax.errors import UserError, amount, choose, door
from bertjax.launch.grid import Job, Point, jobs, judged, table
from bertjax.machine import remote

_CONFIG = command_line.define_config('Config file of all runs')
_WORKDIR = flags.DEFINE_string('workdir', None, 'Directory of the runs.')
_GRID = flags.DEFINE_multi_string(
  'grid', [], 'KEY=VALUE,VALUE,...: a key of the config, without "config."; several make a grid.'
)
_SEEDS = flags.DEFINE_integer(
  'seeds', 1, 'Runs of each point: config.seed and those after it.', lower_bound=1
)
_METRIC = flags.DEFINE_string('metric', '', 'Judges the runs; by default config.best.metric.')
_BEST = flags.DEFINE_bool(
  'best', False, 'Judges each run by its best evaluation, by config.best, and not by its last.'
)
_DRY_RUN = flags.DEFINE_bool('dry_run', False, 'Print the commands that are due.')
_VALUED = ('workdir', 'grid', 'seeds', 'metric')
_SWITCHES = ('dry_run', 'dry-run', 'nodry_run', 'best', 'nobest')
flags.mark_flags_as_required(['config', 'workdir'])


def run_all(due: Sequence[Job], common: list[str], workdir: pathlib.Path, metric: str) -> list[str]:
  """Trains what is due; returns the names of the runs that failed. Raises UserError if a signal has
  stopped a run, or a run does not have the metric, as no other will."""
  from bertjax.launch import resumable

  failed = []
  for number, job in enumerate(due, 1):
    log = workdir / f'{job.name}.log'
    print(f'[{number}/{len(due)}] {job.name}; output in {log}', flush=True)
    status = resumable.run(_flags(job, common, workdir), log, job.name)
    _recall(job.config, workdir / job.name)
    if status:
      failed.append(job.name)
    elif scores := judged(workdir / job.name, job.config, metric):
      choose(metric, sorted(scores.keys() - {'step'}), '--metric')
  return failed


def main() -> int:
  """Trains what is not finished and prints the table; 1 if a run failed."""
  config, workdir = _CONFIG.value, pathlib.Path(_WORKDIR.value or '')
  remote.require_local(_WORKDIR.value, '--workdir')
  metric = _METRIC.value or config.best.metric
  if _BEST.value and metric != config.best.metric:
    raise UserError(f'--best is by config.best.metric={config.best.metric}, got --metric={metric}')
  _choose_preset(config, workdir)
  found = jobs(config, _GRID.value, _SEEDS.value, _settle)
  one_store = _has_one_store(config, [job.point for job in found])
  for job in found:
    if one_store:
      job.config.data.heldout = ''  # in the store
  due = [job for job in found if not _finished(workdir / job.name, job.config, metric)]
  print(f'{amount(len(found), "runs")}, {len(found) - len(due)} finished', flush=True)
  common = [*without_flags(sys.argv[1:], _VALUED, _SWITCHES), f'--config.preset={config.preset}']
  if _DRY_RUN.value:
    command = [sys.executable, '-m', 'bertjax.launch', 'resumable']
    for job in due:
      print(shlex.join([*command, *_flags(job, common, workdir)]))
    return 0
  from bertjax.train import opening

  workdir.mkdir(parents=True, exist_ok=True)
  if due and one_store:
    from bertjax.examples import readers
    from bertjax.store import ensure

    readers.of(config.data).check(config)
    store = ensure.ensure_store(config.data, config.seed, str(workdir))
    common.append(f'--config.data.store={store}')
    common += ['--config.data.heldout='] if config.data.heldout else []
    for job in due:
      job.config.data.store = store
  firsts = {str(job.point): job for job in reversed(due)}.values()  # a seed of each point
  opening.check({job.name: (job.config, workdir / job.name) for job in reversed(firsts)})
  failed = run_all(due, common, workdir, metric)
  Console(width=None if sys.stdout.isatty() else 120).print(
    table(found, failed, workdir, metric, _BEST.value)
  )
  for name in failed:
    print(f'failed: {name}; see {workdir / name}.log')
  return 1 if failed else 0


def _finished(run: pathlib.Path, config: Any, metric: str) -> bool:
  """Returns whether a run has its last checkpoint and its scores. Raises UserError if there is a
  run of another config."""
  from bertjax.checkpoint import resume
  from bertjax.launch.resumable import finished
  from bertjax.train import resolve

  _recall(config, run)
  resolve.check_workdir(run, resume.stored(run), config)
  return finished(str(run), config.total_steps) and metric in judged(run, config, metric)


def _recall(config: Any, run: pathlib.Path) -> None:
  """Sets total_steps to what a run that has begun found for its minutes."""
  from bertjax.checkpoint import resume

  record = resume.stored(run) if config.minutes else None
  if record is not None:
    config.total_steps = record['config']['total_steps']


def _choose_preset(config: Any, workdir: pathlib.Path) -> None:
  """Names the preset of all runs: where one has begun, on whatever machine, its own."""
  from bertjax.checkpoint import resume

  records = (resume.stored(path.parent) for path in sorted(workdir.glob('*/checkpoints')))
  begun = next((record['config'].get('preset', '') for record in records if record), None)
  given = config_flags.get_override_values(flags.FLAGS['config'])
  presets.choose_own(config, given, os.environ, begun)


def _settle(config: Any, point: Collection[str]) -> None:
  """Sets what the run itself will: what its preset says, and steps by epochs or minutes."""
  from bertjax.train import resolve
  from bertjax.train.facts import Facts

  given = {*config_flags.get_override_values(flags.FLAGS['config']), *point}
  settled = resolve.counted(resolve.resolve(config, Facts(given))).config
  for key in ('minutes', 'total_steps', 'eval_steps', 'checkpoint_steps'):
    config[key] = settled[key]
  config.model.update({k: settled.model[k] for k in ('dtype', 'remat') if k in config.model})


def _flags(job: Job, common: Sequence[str], workdir: pathlib.Path) -> list[str]:
  return [*common, *job.flags, f'--workdir={workdir / job.name}']


def _has_one_store(config: Any, grid: Sequence[Point]) -> bool:
  """Returns whether one store, of text that all runs have in common, is to be made."""
  from bertjax.store import ensure as ensure_store

  made_of = {f'data.{key}' for key in ensure_store.MADE_OF}
  own = any(key in made_of or key.rpartition('.')[0] in made_of for key in grid[0])
  brings = config.init_from or 'teacher' in config.objective  # a vocabulary, to each run
  lacking = not (config.data.vocab or config.data.train_vocab.type)
  return not (config.data.store or config.data.reader != 'store' or own or brings and lacking)


if __name__ == '__main__':
  with door('bertjax.sweep'):
    command_line.run(main, 'bertjax.sweep')
