"""The results of runs, read from what lies in their directories."""

import math
import pathlib
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bertjax import dotted, json_files
from bertjax.checkpoint import resume
from bertjax.comparison.runs import PEAK, Run
from bertjax.comparison.tasks import NAME, TUNED
from bertjax.launch.resumable import finished
from bertjax.metrics import lines
from bertjax.metrics.ledger import TRAINING


class Point(NamedTuple):
  """A score of a run while it is trained, and what had been spent by then."""

  flops: float
  tokens: float  # real ones
  seconds: float  # of training and input
  value: float


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
      value = row.get(metric)
      if value is not None and math.isfinite(value):
        found.append(Point(*spent, seconds, value))
    return found

  def last(self, metric: str) -> float | None:
    """Returns a score after the last step of a finished run; None if it has none."""
    found = self.curve(metric) if self.finished else []
    return found[-1].value if found else None

  @property
  def unigram(self) -> float | None:
    """What a guess by the frequency of words has on the targets of its score; None: not known."""
    whole = f'{self.metric.rpartition("/")[0]}/unigram_entropy'
    own = self.last(f'{self.metric}_unigram')
    return self.last(whole) if own is None else own

  @property
  def spent(self) -> Point:
    """Returns what it spent in all, and its real tokens a second."""
    rows = [row for row in self.rows if 'flops/total' in row]
    last = dict(rows[-1]) if rows else {'flops/total': 0.0, 'tokens/total': 0.0}
    seconds = sum(row[f'time/{part}'] for row in rows for part in TRAINING)
    rate = last['tokens/total'] / seconds if seconds else math.nan
    return Point(last['flops/total'], last['tokens/total'], seconds, rate)

  @property
  def tuned(self) -> tuple[str, float] | None:
    """The score of the run that was fine-tuned from it: its name, with what the majority has, and
    its value; None: there is none."""
    home = self.directory / TUNED
    record = resume.stored(home)
    if record is None or not finished(str(home)):
      return None
    metric = record['config']['best']['metric']
    rows = [row for row in lines.of_run(home) if row.get(metric) is not None]
    if not rows:
      return None
    majority = rows[-1].get(f'{metric.rpartition("/")[0]}/majority')
    beside = '' if majority is None else f' (majority {majority:.4f})'
    return metric + beside, rows[-1][metric]

  @property
  def measured(self) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """The scores of `tasks.measure`, and reasons where there are none."""
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


def grouped(results: Iterable[Result], key: Callable[[Result], str]) -> dict[str, list[Result]]:
  """Returns the results by a key, in the order in which it comes up."""
  found: dict[str, list[Result]] = {}
  for result in results:
    found.setdefault(key(result), []).append(result)
  return found


def chosen(of_arm: Sequence[Result]) -> list[Result]:
  """Returns the finished runs of the rate of an arm whose median is best, of those rates at which
  most seeds finished; [] if no run did."""
  score = lambda result: result.last(result.metric)
  by_rate = grouped((r for r in of_arm if score(r) is not None), lambda r: r.peak)
  if not by_rate:
    return []
  most = max(map(len, by_rate.values()))
  whole = [same for same in by_rate.values() if len(same) == most]
  best = max if whole[0][0].config['best.mode'] == 'max' else min
  return best(whole, key=lambda same: statistics.median(map(score, same)))
