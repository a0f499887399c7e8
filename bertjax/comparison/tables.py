"""The tables of the page, of which both its forms are made."""

import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bertjax import json_files
from bertjax.comparison import plan, tasks
from bertjax.comparison.results import Result, Tuned, chosen, chosen_tuned, grouped
from bertjax.machine import locks

# Keys in which arms may be unequal, with all below.
UNEQUAL = (
  'batch_size', 'length', 'total_steps', 'data.split', 'data.plan.', 'data.mask.', 'data.pack',
  'model.name', 'model.layers', 'model.width', 'model.dropout', 'model.init_std', 'objective.',
  'optimizer.', 'phases',
)  # fmt: skip
BYTES = ('state_bytes', 'step_bytes')  # of a `budget.Cost`


class Table(NamedTuple):
  """A table of the page."""

  title: str
  note: str
  head: Sequence[str]
  rows: Sequence[Sequence[str]]


def tables_of(results: Sequence[Result]) -> list[Table]:
  """Returns the tables, of which both forms are made."""
  arms = grouped(results, lambda r: r.arm)
  best = {arm: chosen(runs) for arm, runs in arms.items()}
  tuned = {arm: chosen_tuned(runs) for arm, runs in best.items()}
  rates = _rates(arms, best, tuned)
  return [_scores(best, tuned), _costs(arms, best), rates, _unequal(best)]


def _scores(best: Mapping[str, Sequence[Result]], tuned: Mapping[str, Sequence[Tuned]]) -> Table:
  rows = []
  for arm, runs in best.items():
    if not runs:
      rows.append([arm, *'-' * 9])
      continue
    measured = [r.measured[0] for r in runs]
    of = lambda name, found=measured: _spread([each.get(name) for each in found])
    name, perplexity = short(runs[0].metric), ('eval/pseudo_perplexity', 'eval/perplexity')
    rows.append([
      arm, str(len(runs)), f'{name} {_spread([r.last(r.metric) for r in runs])}',
      _spread([r.unigram for r in runs]),
      _spread([r.last(perplexity[0]) or r.last(perplexity[1]) for r in runs]),
      _spread([one.value for one in tuned[arm]]),
      *(_by_layer([m[key] for m in measured if key in m]) for key in ('probe', 'neighbours')),
      of('minimal_pairs'), of('minimal_pairs_ties'),
    ])  # fmt: skip
  beside = lambda one: '' if one.majority is None else f' (majority {one.majority:.4f})'
  names = sorted({one.metric + beside(one) for found in tuned.values() for one in found})
  head = (
    'arm', 'seeds', 'own held-out score', 'its unigram', '(pseudo-)perplexity',
    ' '.join(['fine-tuned', *names]), 'linear probe, by layer', 'next sentence found, by layer',
    'minimal pairs', 'ties',
  )  # fmt: skip
  note = (
    'Median over the seeds of the best rate, least and largest in brackets. Own scores are of '
    'different tasks and do not compare; a unigram guesses its words, special tokens apart, by '
    'how frequent they are. Pseudo-perplexity (each token from all others) and perplexity (from '
    'those before) do not compare with each other. A sentence of the held-out text finds the next '
    f'one, of {tasks.NEIGHBOURS:,} at most, by the cosine of mean vectors. A tie is wrong.'
  )
  return Table('Scores', note, head, rows)


def _costs(arms: Mapping[str, Sequence[Result]], best: Mapping[str, Sequence[Result]]) -> Table:
  rows = []
  for arm, runs in arms.items():
    some = best[arm] or runs
    record = _planned(some[0]).get(arm, {})
    cost = record.get('cost', {})
    of = lambda field, some=some: statistics.median(getattr(r.spent, field) for r in some)
    rows.append([
      arm, f'{cost["parameters"]:,}' if cost else '-', f'{cost["flops"]:.4g}' if cost else '-',
      f'{some[0].config.get("total_steps", 0):,}', f'{of("flops"):.4g}', f'{of("tokens"):,.0f}',
      f'{of("seconds"):,.0f}', f'{of("value"):,.0f}',
      *(f'{n / 1e6:,.1f}' if (n := cost.get(key)) else '-' for key in BYTES),
    ])  # fmt: skip
  head = ('arm', 'parameters', 'FLOPs a step, planned', 'steps', 'FLOPs spent', 'real tokens',
          'seconds of training', 'tokens/s', 'MB of state', 'MB of a step')  # fmt: skip
  note = (
    "FLOPs are the model's own count of forward and backward over real tokens, with generator, "
    'second stream, decoder and head. Seconds and tokens/s are of this machine. MB of a step are '
    'what its compiler says that it holds at once, state and batch in it, not the process around.'
  )
  return Table('What each arm spent', note, head, rows)


def _rates(
  arms: Mapping[str, Sequence[Result]],
  best: Mapping[str, Sequence[Result]],
  tuned: Mapping[str, Sequence[Tuned]],
) -> Table:
  rows = []
  for arm, runs in arms.items():
    for peak, same in grouped(runs, lambda r: r.peak).items():
      metric = next((r.metric for r in same if r.metric), '')
      lost = [r.directory for r in same if r.lost]
      taken = bool(best[arm]) and best[arm][0].peak == peak
      rows.append([
        arm, peak, short(metric), _spread([r.last(metric) for r in same]),
        *_finished(same, lost), 'taken' if taken else '',
      ])  # fmt: skip
    for peak, ones in grouped(
      [one for r in best[arm] for one in r.tuned], lambda o: o.peak
    ).items():
      lost = [one.directory for one in ones if one.value is None]
      rows.append([
        f'{arm}, fine-tuned', peak, short(ones[0].metric), _spread([one.value for one in ones]),
        *_finished(ones, lost), 'taken' if tuned[arm] and tuned[arm][0].peak == peak else '',
      ])  # fmt: skip
  note = 'The rate of each arm whose median over the seeds is best is taken for the scores above.'
  head = ('arm', 'peak', 'score', 'after the last step', 'finished', '', '')
  return Table('Learning rates', note, head, rows)


def _unequal(best: Mapping[str, Sequence[Result]]) -> Table:
  configs = {arm: runs[0].config for arm, runs in best.items() if runs}
  keys = sorted({key for config in configs.values() for key in config if key.startswith(UNEQUAL)})
  shown = lambda value: '-' if value is None else str(value)
  rows = [[key, *(shown(c.get(key)) for c in configs.values())] for key in keys]
  rows = [row for row in rows if len({*row[1:]}) > 1]
  note = (
    'Text, vocabulary and order of documents are the same where arms share a store; each recipe '
    'cuts, masks and shuffles its rows by its own rules.'
  )
  return Table('What was not equal', note, ('key', *configs), rows)


def _planned(result: Result) -> Mapping[str, Any]:
  """Returns arm -> its record of the comparison that a run is of; {} of a run by itself."""
  path = (result.directory / '../../..' / plan.NAME).resolve()
  return json_files.read(path, dict, '')['arms'] if path.exists() else {}


def _finished(runs: Sequence[Any], lost: Sequence[pathlib.Path]) -> tuple[str, str]:
  """Returns how many runs finished, and what became of those in the directories `lost`."""
  runs_on = any(not locks.is_free(home / 'lock') for home in lost)
  state = 'running' if runs_on else 'FAILED' if lost else ''
  return f'{len(runs) - len(lost)} of {len(runs)}', state


def short(metric: str) -> str:
  """Returns the name of a score without the evaluation, and the phase, that it is of."""
  return metric.rpartition('/')[2]


def _by_layer(probes: Sequence[Sequence[float]]) -> str:
  """Each layer's accuracy, of the seeds."""
  layers = [_spread(each) for each in zip(*probes, strict=True)]
  return '; '.join(f'{i}: {said}' for i, said in enumerate(layers, 1)) or '-'


def _spread(values: Sequence[float | None]) -> str:
  """Median with least and largest; '-' without values."""
  found = [value for value in values if value is not None]
  if not found:
    return '-'
  middle = f'{statistics.median(found):.4f}'
  return middle if len(found) == 1 else f'{middle} [{min(found):.4f}, {max(found):.4f}]'
