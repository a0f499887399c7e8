"""A grid of runs: its points, its runs with their flags, and the table of what they scored."""

import ast
import copy
import itertools
import json
import pathlib
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich.table import Table

from bertjax.errors import UserError, choose

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


def table(found: Sequence[Job], failed: Sequence[str], workdir: pathlib.Path, metric: str) -> Table:
  """A row for each point: median and spread of the metric after the last step, over the seeds.

  Raises:
    UserError: runs are finished and none has the metric.
  """
  logged = {job.name: last_scores(workdir / job.name, job.config.total_steps) for job in found}
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


def last_scores(run: pathlib.Path, step: int) -> dict[str, float]:
  """All that was logged at a step; a last line torn by a kill is left out."""
  path, found = run / 'metrics.jsonl', {}
  lines = path.read_text(encoding='utf-8').splitlines(keepends=True) if path.exists() else []
  for line in filter(lambda line: line.endswith('\n'), lines):
    row = json.loads(line)
    if row['step'] == step:
      found |= row
  return found


def without_flags(
  argv: Sequence[str], valued: Collection[str], switches: Collection[str]
) -> Iterator[str]:
  """The arguments but for flags with a value, in the same word or in the next, and switches."""
  skip = False
  for argument in argv:
    name, equals, _ = argument.lstrip('-').partition('=')
    if skip or (argument.startswith('-') and name in {*valued, *switches}):
      skip = not skip and not equals and name in valued
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
