"""A grid of runs: its points, its runs with their flags, and the table of what they scored."""

import ast
import copy
import itertools
import math
import pathlib
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from rich.table import Table

from bertjax.errors import UserError, choose
from bertjax.metrics import lines

Point = Mapping[str, str]  # key -> value, as text


class Job(NamedTuple):
  """One run."""

  point: Point  # of the grid
  name: str  # of its directory
  config: Any  # of the run
  flags: list[str]  # that differ from those of all runs


def points(grid: Sequence[str], config: Any) -> list[dict[str, str]]:
  """Returns the points of a grid of lines KEY=VALUE,VALUE,..., the last key changing fastest.
  Raises UserError for a line that is no such, or an unknown key, with the nearest one."""
  axes: dict[str, list[str]] = {}
  for line in grid:
    key, equals, text = line.partition('=')
    key = key.strip().removeprefix('config.')
    values = split(text)
    if not equals or not key or '' in values:
      raise UserError(f'--grid: expected KEY=VALUE,VALUE,..., got {line!r}')
    before = _at(config, key, '--grid')
    if key in axes or len({repr(_parse(before, value)) for value in values}) < len(values):
      raise UserError(f'--grid: {key} or one of its values is there twice')
    axes[key] = values
  if 'seed' in axes:
    raise UserError('--grid: seeds are counted by --seeds, from config.seed on')
  return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def jobs(
  config: Any,
  grid: Sequence[str],
  seeds: int,
  settle: Callable[[Any, Collection[str]], Any] = lambda config, given: None,
) -> list[Job]:
  """Returns the runs, seed by seed, so that every point has one early; each config is
  settled(config, keys of its point) as the run itself will, and checked. Raises UserError as
  `points`, or for a config that cannot be."""
  from bertjax.config import schema, sections

  config = copy.deepcopy(config)
  sections.complete(config, [line.partition('=')[0].removeprefix('config.') for line in grid])
  made = []
  for point in points(grid, config):
    changed = changed_by(config, point, '--grid')
    schema.check(changed)
    settle(changed, point)
    made.append((point, changed))
  found = []
  for seed in range(config.seed, config.seed + seeds):
    for point, changed in made:
      own = copy.deepcopy(changed)
      own.seed = seed
      given = [f'--config.{key}={value}' for key, value in point.items()]
      found.append(Job(point, _name(point, seed), own, [*given, f'--config.seed={seed}']))
  names = [job.name for job in found]
  if len(set(names)) < len(names):
    raise UserError(f'--grid: two points would have one directory: {", ".join(sorted(names))}')
  return found


def changed_by(config: Any, point: Point, flag: str) -> Any:
  """Returns a completed config with other values of some keys. Raises UserError, which names the
  flag that asks for it: an unknown key, or a value of another type."""
  changed = copy.deepcopy(config)
  for key, text in point.items():
    try:
      changed.update_from_flattened_dict({key: _parse(_at(config, key, flag), text)})
    except TypeError as error:  # ml_collections' of another type
      kind = type(_at(config, key, flag)).__name__
      raise UserError(f'{flag}: config.{key}: expected {kind}, got {text!r}') from error
  return changed


def table(
  found: Sequence[Job],
  failed: Sequence[str],
  workdir: pathlib.Path,
  metric: str,
  best: bool = False,
) -> Table:
  """Returns a row for each point: median and spread over the seeds of a metric after the last step,
  or of the best evaluation by `config.best`, and what went wrong. Where runs are scored beside the
  majority, the last column counts those whose accuracy is no better: a failed run of Mosbach et al.
  2021. Raises UserError if no finished run has the metric."""
  logged = {job.name: judged(workdir / job.name, job.config, metric, best) for job in found}
  known = sorted({name for scores in logged.values() for name in scores} - {'step'})
  if known:
    choose(metric, known, '--metric')
  majority = _beside(metric, 'majority') in known and _beside(metric, 'accuracy') in known
  when = 'at its best' if best else 'after the last step'
  shown = Table(title=f'{metric} {when}', title_justify='left')
  for key in found[0].point or ('config',):
    shown.add_column(key)
  headings = ('median', 'spread', 'finished', 'failed', *(('as majority',) if majority else ()))
  for heading in headings:
    shown.add_column(heading, justify='right')
  by_point: dict[tuple[str, ...], list[Job]] = {}
  for job in found:
    by_point.setdefault(tuple(job.point.values()), []).append(job)
  for values, same in by_point.items():
    scored = [logged[job.name] for job in same if metric in logged[job.name]]
    scores = [row[metric] for row in scored]
    median = f'{statistics.median(scores):.4f}' if scores else '-'
    spread = f'{min(scores):.4f} to {max(scores):.4f}' if scores else '-'
    lost = [job for job in same if job.name in failed]
    row = [median, spread, f'{len(scores)} of {len(same)}', str(len(lost))]
    if majority:
      accuracy, most = _beside(metric, 'accuracy'), _beside(metric, 'majority')
      row.append(str(sum(most in each and each[accuracy] <= each[most] for each in scored)))
    shown.add_row(*(values or (same[0].config.name,)), *row)
  return shown


def judged(run: pathlib.Path, config: Any, metric: str, best: bool = False) -> dict[str, float]:
  """Returns the scores of the step by which `table` judges a run; {} before the run has ended."""
  from bertjax.checkpoint import resume

  last = scores_at(run, resume.last_step(run, config.total_steps))
  if not best or metric not in last:
    return last
  rows = [row for row in lines.of_run(run) if not math.isnan(row.get(metric, math.nan))]
  choose_best = max if config.best.mode == 'max' else min
  at = choose_best(rows, key=lambda row: row[metric])['step'] if rows else last['step']
  return scores_at(run, int(at))


def scores_at(run: pathlib.Path, step: int) -> dict[str, float]:
  """Returns all that was logged at a step."""
  found = {}
  for row in lines.of_run(run):
    if row['step'] == step:
      found |= row
  return found


def _beside(metric: str, score: str) -> str:
  """Another score of the set that a metric is of: eval/dev/f1 -> eval/dev/accuracy."""
  return f'{metric.rpartition("/")[0]}/{score}'


def _name(point: Point, seed: int) -> str:
  """Returns a directory name: last part of each key and value, '_' for what no path can hold."""
  last = [key.rpartition('.')[2] for key in point]
  keys = last if len(set(last)) == len(last) else list(point)
  plain = lambda text: ''.join(c if c.isalnum() or c in '.+-_' else '_' for c in text)
  return ','.join([*(f'{k}={plain(v)}' for k, v in zip(keys, point.values(), strict=True)),
                   f'seed={seed}'])  # fmt: skip


def split(text: str) -> list[str]:
  """Returns the parts between commas that are not inside brackets or quotes: '(1,2),(3,4)' is
  two."""
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


def _at(config: Any, key: str, flag: str) -> Any:
  """Returns the value of a dotted key. Raises UserError if there is none; the nearest is named."""
  value, where = config, 'config'
  for part in key.split('.'):
    if not hasattr(value, 'items') or not value:
      raise UserError(
        f'{flag}: {where} has no keys below it, got config.{key}: expected a key that the recipe '
        'has; a file of your own may add others'
      )
    choose(part, value, f'{flag}: keys of {where}')
    value, where = value[part], f'{where}.{part}'
  return value


def _parse(current: Any, text: str) -> Any:
  """Returns a value of the grid as the type of the one it replaces."""
  if isinstance(current, str):
    return text
  if isinstance(current, bool) and text.lower() in ('true', 'false'):
    return text.lower() == 'true'
  try:
    value = ast.literal_eval(text)
  except (ValueError, SyntaxError):
    return text
  return float(value) if isinstance(current, float) and isinstance(value, int) else value
