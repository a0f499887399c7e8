"""The sets of `config.evals`: made before the first step, run when they are due, scores named.

The scores of the set `held_out` are called eval/<score>, those of another one eval/<set>/<score>,
or eval/<set> where the score has the name of its set. Where phases are side by side, all of them
are judged, and the phase comes first: eval/<phase>/<score>. `config.best.mean` names scores, of
several tasks as a rule, whose mean is eval/mean.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from bertjax import options as options_lib
from bertjax import registry
from bertjax.errors import UserError
from bertjax.metrics.progress import Progress
from bertjax.types import Evaluation, Evaluator, Report, Subject, Variables

FIRST = 'held_out'  # the set whose scores are named without it
MEAN = 'eval/mean'


class EvalSet(NamedTuple):
  """A set of `config.evals`."""

  name: str
  every: int  # steps between two evaluations; 0: at the end of the run alone
  evaluation: Evaluation  # what it runs
  phase: str = ''  # the phase that its scores are named by, where several are side by side; ''

  def due(self, step: int, last: bool) -> bool:
    """Returns whether this set runs after a step: every `every` steps, and after the last."""
    return last or bool(self.every and step % self.every == 0)

  def score_name(self, score: str) -> str:
    """Returns the name under which a score is logged."""
    own = () if self.name == FIRST else (self.name,)
    parts = ('eval', self.phase, *own, *(() if own == (score,) else (score,)))
    return '/'.join(filter(None, parts))


def make(subject: Subject, phase: str = '') -> tuple[EvalSet, ...]:
  """Returns the sets of a phase, ready to run; `phase` is as of `EvalSet`. Raises UserError: an
  unknown evaluator or option, one that the objective does not support, or whatever the evaluator
  refuses."""
  sets = []
  for name, given in subject.config.evals.items():
    key = f'config.evals.{name}'
    evaluator: Evaluator = registry.chosen('bertjax.evals', given.type, f'{key}.type')
    fields = {k: v for k, v in given.items() if k not in ('type', 'every')}
    options = options_lib.read(evaluator.options, fields, key)
    if evaluator.idle(options):
      continue
    if given.type not in subject.objective.evals:
      raise UserError(
        f'{key}: with this model config.objective.name={subject.config.objective.name!r} can be '
        f'judged by {", ".join(subject.objective.evals)}, got type={given.type!r}: leave it out'
      )
    made = evaluator.make(subject._replace(key=key), options)
    sets.append(EvalSet(name, given.every, made, phase))
  return tuple(sets)


def score_names(sets: Iterable[EvalSet]) -> set[str]:
  """Every score that these sets may give."""
  return {s.score_name(score) for s in sets for score in s.evaluation.names}


def mean(best: Any, scores: Mapping[str, float]) -> dict[str, float]:
  """Returns the mean of the scores that `config.best` names; {}: it names none, or one lacks."""
  names = best.get('mean', ())
  if not names or not all(name in scores for name in names):
    return {}
  return {MEAN: math.fsum(scores[name] for name in names) / len(names)}


def due(sets: Iterable[EvalSet], step: int, last: bool) -> bool:
  """Returns whether any of these sets runs after a step."""
  return any(s.due(step, last) for s in sets)


def lacking(sets: Iterable[EvalSet], step: int, scores: Mapping[str, float]) -> bool:
  """Returns whether a set is due after this step only if it is the last one, and gave none of
  these scores."""
  return any(
    s.evaluation.names
    and not s.due(step, False)
    and not any(s.score_name(name) in scores for name in s.evaluation.names)
    for s in sets
  )


def run_due(
  sets: Iterable[EvalSet], variables: Variables, step: int, last: bool, rest: bool = False
) -> tuple[dict[str, float], list[Any]]:
  """Runs the sets that are due after a step; with `last` all are, with `rest` all but those that
  would be due if it were not the last. Returns (the scores by the names they are logged under,
  tables to be shown)."""
  scores, tables = {}, []
  for s in sets:
    if s.due(step, last) and not (rest and s.due(step, False)):
      report: Report = s.evaluation.run(variables, step)
      scores |= {s.score_name(name): value for name, value in report.scores.items()}
      tables += [] if report.table is None else [report.table]
  return scores, tables


def scores(
  run: Any, done: int, last: bool, variables: Variables, progress: Progress,
  before: Mapping[str, float] | None = None,
) -> dict[str, float]:  # fmt: skip
  """Runs the evaluations of a `setup.Run` that are due after step `done` and shows what they found.
  Returns name -> score, those of `before` among them: scores already computed for this step, of
  which only the end-of-run sets are missing."""
  rest, sets = before is not None, run.evals(done)
  if any(last or s.every == done for s in sets):  # all of them, or the first time: minutes
    names = dict.fromkeys(s.name for s in sets if s.due(done, last))
    progress.note(f'Evaluating: {", ".join(names)}')
  found, tables = run_due(sets, variables, done, last, rest)
  found |= mean(run.config.best, {**(before or {}), **found})
  shown = ', '.join(f'{k} {v:.4f}' for k, v in found.items())
  if shown or not rest:
    progress.note(f'Step {done}: {shown or "nothing is held out to evaluate on"}')
  for table in tables:
    progress.show(table)
  return {**(before or {}), **found}
