"""The results of runs, read from what lies in their directories."""

import math
import pathlib
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from bertjax import dotted, json_files
from bertjax.checkpoint import resume
from bertjax.comparison.runs import PEAK, Run
from bertjax.comparison.tasks import NAME, TUNED
from bertjax.launch.resumable import finished
from bertjax.metrics import lines
from bertjax.metrics.ledger import TRAINING
from bertjax.train.report import OF_WORDS

T = TypeVar('T')


class Point(NamedTuple):
  """A score of a run while it is trained, and what had been spent by then."""

  flops: float
  tokens: float  # real ones
  seconds: float  # of training and input
  value: float


class Tuned(NamedTuple):
  """A run that fine-tunes one of pretraining."""

  directory: pathlib.Path
  peak: str
  metric: str
  mode: str  # 'max' or 'min', which is better
  majority: float | None  # what a guess of the commonest class has
  value: float | None  # after the last step; None: it failed, is not finished, or is lost (NaN)


class Result(NamedTuple):
  """A run of pretraining."""

  directory: pathlib.Path
  arm: str
  peak: str
  seed: int
  config: Mapping[str, Any]  # dotted key -> value; {} if it took no step
  rows: Sequence[Mapping[str, Any]]  # of metrics.jsonl
  finished: bool

  @property
  def metric(self) -> str:
    """The score by which its arm chooses a rate."""
    return self.config.get('best.metric', '')

  def curve(self, metric: str) -> list[Point]:
    """Returns the scores of a metric by what was spent, where it is a number."""
    found, spent, seconds = [], (0.0, 0.0), 0.0
    for row in self.rows:
      if 'flops/total' in row:
        spent = row['flops/total'], row['tokens/total']
        seconds += sum(row[f'time/{part}'] for part in TRAINING)
      value = _finite(row.get(metric))
      if value is not None:
        found.append(Point(*spent, seconds, value))
    return found

  def last(self, metric: str) -> float | None:
    """Returns a score after the last step of a finished run; None if it has none, or no number."""
    found = [row[metric] for row in self.rows if metric in row] if self.finished else []
    return _finite(found[-1]) if found else None

  @property
  def lost(self) -> bool:
    """True of a run that failed, is not finished, or whose own score has become no number."""
    return not self.finished or bool(self.metric) and self.last(self.metric) is None

  @property
  def unigram(self) -> float | None:
    """A guess by the frequency of words, on the targets of its score but for special tokens; None:
    not known."""
    group, _, name = self.metric.rpartition('/')
    return self.last(f'{group}/unigram_entropy' if name in OF_WORDS else f'{self.metric}_unigram')

  @property
  def spent(self) -> Point:
    """Returns what it spent in all, and its real tokens a second."""
    rows = [row for row in self.rows if 'flops/total' in row]
    last = dict(rows[-1]) if rows else {'flops/total': 0.0, 'tokens/total': 0.0}
    seconds = sum(row[f'time/{part}'] for row in rows for part in TRAINING)
    rate = last['tokens/total'] / seconds if seconds else math.nan
    return Point(last['flops/total'], last['tokens/total'], seconds, rate)

  @property
  def tuned(self) -> list[Tuned]:
    """The runs that fine-tune it, one for each rate."""
    return [_tuned(home) for home in sorted(self.directory.glob(f'{TUNED}*')) if home.is_dir()]

  @property
  def measured(self) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """The scores of `tasks.score`, and reasons where there are none."""
    path = self.directory / NAME
    found = json_files.read(path, dict, ': remove it') if path.exists() else {}
    return found.get('scores', {}), found.get('refused', {})


def read(directory: pathlib.Path | str, run: Run | None = None) -> Result:
  """Reads a run. Raises UserError if none has begun there, unless it is one of a comparison."""
  directory = pathlib.Path(directory)
  record = (resume.stored if run and run.job else resume.required)(directory)
  config = dict(dotted.flat(record['config'])) if record else {}
  if run and run.job:
    arm, peak, seed = run.arm, run.job.point[PEAK], run.job.config.seed
  else:
    arm, peak, seed = config['name'], f'{config[PEAK]:g}', config['seed']
  rows = lines.of_run(directory) if directory.exists() else []
  return Result(directory, arm, peak, seed, config, rows, bool(record) and finished(str(directory)))


def grouped(results: Iterable[T], key: Callable[[T], str]) -> dict[str, list[T]]:
  """Returns the results by a key, in the order in which it comes up."""
  found: dict[str, list[T]] = {}
  for result in results:
    found.setdefault(key(result), []).append(result)
  return found


def _tuned(home: pathlib.Path) -> Tuned:
  record = resume.stored(home) or dict(config=dict(best=dict(metric='', mode='')))
  metric, mode = (record['config']['best'][key] for key in ('metric', 'mode'))
  whole = finished(str(home))
  rows = [row for row in lines.of_run(home) if whole and metric in row]
  last = rows[-1] if rows else {}
  majority = last.get(f'{metric.rpartition("/")[0]}/majority')
  value = _finite(last.get(metric))
  return Tuned(home, home.name.removeprefix(TUNED), metric, mode, majority, value)


def _finite(value: float | None) -> float | None:
  return value if value is not None and math.isfinite(value) else None


def chosen(of_arm: Sequence[Result]) -> list[Result]:
  """Returns the finished runs of an arm `at_best_rate`; [] if no run finished."""
  score = lambda result: result.last(result.metric)
  done = [result for result in of_arm if score(result) is not None]
  return at_best_rate(done, score, done[0].config['best.mode']) if done else []


def chosen_tuned(runs: Sequence[Result]) -> list[Tuned]:
  """Returns the finished fine-tunings of some runs `at_best_rate`; [] if none finished."""
  done = [one for run in runs for one in run.tuned if one.value is not None]
  return at_best_rate(done, lambda one: one.value, done[0].mode) if done else []


def at_best_rate(done: Sequence[T], score: Callable[[T], Any], mode: str) -> list[T]:
  """Returns the runs of the rate whose median is best, of those at which most seeds finished."""
  by_rate = [*grouped(done, lambda run: run.peak).values()]  # pyright: ignore
  most = max(map(len, by_rate))
  best = max if mode == 'max' else min
  whole = [same for same in by_rate if len(same) == most]
  return best(whole, key=lambda same: statistics.median(map(score, same)))
