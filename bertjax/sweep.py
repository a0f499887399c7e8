"""Trains a grid of configs, prints one table: python -m bertjax.sweep

  python -m bertjax.sweep --config=configs/bert.py:tiny --workdir=runs/rates --seeds=3 \
      --grid='optimizer.schedule.peak=1e-3,2e-3' --grid='batch_size=16,32' --config.data.store=STORE

Each run is `bertjax.main` in WORKDIR/NAME, one after the other, its output in WORKDIR/NAME.log. The
same command goes on where it was stopped, runs what failed again and skips what is finished. Text
becomes a store once, for all runs, unless the grid is over what the store is made of.
"""

import ast
import copy
import functools
import itertools
import json
import pathlib
import shlex
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from absl import app, flags
from ml_collections import config_flags
from rich.console import Console
from rich.table import Table

from bertjax import config_files
from bertjax.errors import UserError, choose, door

_CONFIG = config_flags.DEFINE_config_file('config', None, 'Config file of all runs.')
_WORKDIR = flags.DEFINE_string('workdir', None, 'Directory of the runs.')
_GRID = flags.DEFINE_multi_string(
  'grid', [], 'KEY=VALUE,VALUE,...: a key of the config, without "config."; several make a grid.'
)
_SEEDS = flags.DEFINE_integer(
  'seeds', 1, 'Runs of each point: config.seed and those after it.', lower_bound=1
)
_METRIC = flags.DEFINE_string('metric', '', 'Judges the runs; by default config.best.metric.')
_DRY_RUN = flags.DEFINE_bool('dry_run', False, 'Print the commands that are due.')
_OWN = ('workdir', 'grid', 'seeds', 'metric', 'dry_run', 'dry-run', 'nodry_run')
flags.mark_flags_as_required(['config', 'workdir'])

Point = Mapping[str, str]  # key -> value, as text


class Job(NamedTuple):
  """One run.

  Attributes:
    point: of the grid.
    name: of its directory.
    config: of the run.
    flags: that differ from those of all runs.
  """

  point: Point
  name: str
  config: Any
  flags: list[str]


def points(grid: Sequence[str], config: Any) -> list[dict[str, str]]:
  """The points of a grid, the last key changing fastest.

  Raises:
    UserError: a line that is not KEY=VALUE,..., or an unknown key; the nearest is named.
  """
  axes: dict[str, list[str]] = {}
  for line in grid:
    key, equals, text = line.partition('=')
    key = key.strip().removeprefix('config.')
    values = _split(text)
    if not equals or not key or '' in values:
      raise UserError(f'--grid: expected KEY=VALUE,VALUE,..., got {line!r}')
    _at(config, key)
    if key in axes or len(set(values)) < len(values):
      raise UserError(f'--grid: {key} or one of its values is there twice')
    axes[key] = values
  if 'seed' in axes:
    raise UserError('--grid: seeds are counted by --seeds, from config.seed on')
  return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def jobs(config: Any, grid: Sequence[str], seeds: int) -> list[Job]:
  """The runs, seed by seed, so that every point has one early; each config is checked.

  Raises:
    UserError: as `points`, or a config that cannot be.
  """
  from bertjax import schema

  found = []
  for seed in range(config.seed, config.seed + seeds):
    for point in points(grid, config):
      changed = copy.deepcopy(config)
      changed.update_from_flattened_dict({k: _parse(_at(config, k), v) for k, v in point.items()})
      changed.seed = seed
      schema.check(changed)
      given = [f'--config.{key}={value}' for key, value in point.items()]
      name = _name(point, seed)
      found.append(Job(point, name, changed, [*given, f'--config.seed={seed}']))
  names = [job.name for job in found]
  if len(set(names)) < len(names):
    raise UserError(f'--grid: two points would have one directory: {", ".join(sorted(names))}')
  return found


def run_all(due: Sequence[Job], common: list[str], workdir: pathlib.Path) -> list[str]:
  """Trains what is due; returns the names of the runs that failed.

  Raises:
    UserError: a signal has stopped a run.
  """
  from bertjax.launch.processes import Command, run_together
  from bertjax.launch.resumable import UNFINISHED

  failed = []
  for number, job in enumerate(due, 1):
    log = workdir / f'{job.name}.log'
    print(f'[{number}/{len(due)}] {job.name}; output in {log}', flush=True)
    command = _command(job, common, workdir)
    status = run_together([Command(command, {}, log, job.name)])
    if status == UNFINISHED:
      raise UserError(f'stopped in {job.name}; the same command goes on from there')
    if status:
      failed.append(job.name)
  return failed


def table(found: Sequence[Job], failed: Sequence[str], workdir: pathlib.Path, metric: str) -> Table:
  """A row for each point: median and spread of the metric after the last step, over the seeds.

  Raises:
    UserError: runs are finished and none has the metric.
  """
  logged = {job.name: _last(workdir / job.name, job.config.total_steps) for job in found}
  known = sorted({name for scores in logged.values() for name in scores} - {'step'})
  if known:
    choose(metric, known, '--metric')
  shown = Table(title=f'{metric} after the last step', title_justify='left')
  for key in found[0].point or ('config',):
    shown.add_column(key)
  for heading in ('median', 'spread', 'finished', 'failed'):
    shown.add_column(heading, justify='right')
  by_point: dict[tuple[str, ...], list[Job]] = {}
  for job in found:
    by_point.setdefault(tuple(job.point.values()), []).append(job)
  for values, same in by_point.items():
    scores = [logged[job.name][metric] for job in same if metric in logged[job.name]]
    median = f'{statistics.median(scores):.4f}' if scores else '-'
    spread = f'{min(scores):.4f} to {max(scores):.4f}' if scores else '-'
    lost = [job for job in same if job.name in failed]
    done = f'{len(scores)} of {len(same)}'
    shown.add_row(*(values or (same[0].config.name,)), median, spread, done, str(len(lost)))
  return shown


def main(argv: list[str]) -> int:
  """Trains what is not finished and prints the table; 1 if a run failed."""
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments: {" ".join(argv[1:])}')
  config, workdir = _CONFIG.value, pathlib.Path(_WORKDIR.value or '')
  metric = _METRIC.value or config.best.metric
  found = jobs(config, _GRID.value, _SEEDS.value)
  due = [job for job in found if not _finished(workdir / job.name, job.config, metric)]
  print(f'{len(found)} runs, {len(found) - len(due)} finished', flush=True)
  common = list(_without_own(config_files.located(sys.argv)[1:]))
  if _DRY_RUN.value:
    print('\n'.join(shlex.join(_command(job, common, workdir)) for job in due))
    return 0
  workdir.mkdir(parents=True, exist_ok=True)
  if due:
    common += _one_store(config, [job.point for job in found], workdir)
  failed = run_all(due, common, workdir)
  Console(width=None if sys.stdout.isatty() else 120).print(table(found, failed, workdir, metric))
  for name in failed:
    print(f'failed: {name}; see {workdir / name}.log')
  return 1 if failed else 0


def _finished(run: pathlib.Path, config: Any, metric: str) -> bool:
  """Whether a run has its last checkpoint and its scores.

  Raises:
    UserError: there is a run of another config.
  """
  from bertjax.checkpoint import resume
  from bertjax.launch.resumable import finished

  resume.check_workdir(run, config)
  return finished(str(run), config.total_steps) and metric in _last(run, config.total_steps)


def _last(run: pathlib.Path, step: int) -> dict[str, float]:
  """All that was logged at a step; a last line torn by a kill is left out."""
  path, found = run / 'metrics.jsonl', {}
  lines = path.read_text(encoding='utf-8').splitlines(keepends=True) if path.exists() else []
  for line in filter(lambda line: line.endswith('\n'), lines):
    row = json.loads(line)
    if row['step'] == step:
      found |= row
  return found


def _command(job: Job, common: Sequence[str], workdir: pathlib.Path) -> list[str]:
  own = [*job.flags, f'--workdir={workdir / job.name}']
  return [sys.executable, '-m', 'bertjax.launch', 'resumable', *common, *own]


def _one_store(config: Any, grid: Sequence[Point], workdir: pathlib.Path) -> list[str]:
  """Makes the store of all runs, if they have text in common; returns the flags that name it."""
  from bertjax.data import ensure_store

  made_of = {f'data.{key}' for key in ensure_store.MADE_OF}
  data = config.data
  own = any(key in made_of or key.rpartition('.')[0] in made_of for key in grid[0])
  if data.store or data.reader != 'store' or own:
    return []
  store = ensure_store.ensure_store(data, config.seed, str(workdir))
  return [f'--config.data.store={store}', *(['--config.data.heldout='] if data.heldout else [])]


def _without_own(argv: Sequence[str]) -> Iterator[str]:
  """The arguments but for this command's own."""
  skip = False
  for argument in argv:
    name, equals, _ = argument.lstrip('-').partition('=')
    if skip or (argument.startswith('-') and name in _OWN):
      skip = not skip and not equals and name not in ('dry_run', 'dry-run', 'nodry_run')
    else:
      yield argument


def _name(point: Point, seed: int) -> str:
  """Of a directory: the last part of each key and its value, without what a path cannot hold."""
  last = [key.rpartition('.')[2] for key in point]
  keys = last if len(set(last)) == len(last) else list(point)
  plain = lambda text: ''.join(c if c.isalnum() or c in '.+-_' else '_' for c in text)
  return ','.join([*(f'{k}={plain(v)}' for k, v in zip(keys, point.values(), strict=True)),
                   f'seed={seed}'])  # fmt: skip


def _split(text: str) -> list[str]:
  """At the commas that are not inside brackets or quotes: '(1,2),(3,4)' is two values."""
  parts, depth, quote = [''], 0, ''
  for char in text:
    if char == ',' and not depth and not quote:
      parts.append('')
      continue
    parts[-1] += char
    if quote or char in '\'"':
      quote = '' if char == quote else quote or char
    else:
      depth += (char in '([{') - (char in ')]}')
  return [part.strip() for part in parts]


def _at(config: Any, key: str) -> Any:
  """The value of a dotted key.

  Raises:
    UserError: there is none; the nearest is named.
  """
  value, where = config, 'config'
  for part in key.split('.'):
    if not hasattr(value, 'items'):
      raise UserError(f'--grid: {where} has no keys below it, got config.{key}')
    choose(part, value, f'--grid: keys of {where}')
    value, where = value[part], f'{where}.{part}'
  return value


def _parse(current: Any, text: str) -> Any:
  """A value of the grid as the type of the one it replaces."""
  if isinstance(current, str):
    return text
  if isinstance(current, bool) and text.lower() in ('true', 'false'):
    return text.lower() == 'true'
  try:
    value = ast.literal_eval(text)
  except (ValueError, SyntaxError):
    return text
  return float(value) if isinstance(current, float) and isinstance(value, int) else value


if __name__ == '__main__':
  with door('bertjax.sweep'):
    parse = functools.partial(config_files.parse_flags, program='bertjax.sweep')
    app.run(main, config_files.located(sys.argv), flags_parser=parse)
