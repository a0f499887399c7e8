"""Ends a run whose evaluations are no better, or averages its parameters.

It ends after `config.best.patience` in a row (early stopping). Averaging begins with the first one
that is worse than the best of those more than `config.optimizer.average` before it, though a later
one may have been better (awd-lstm-lm, main.py: nonmono).

What is counted is part of the checkpoints, and an evaluation comes after the checkpoint of its
step; so a run that was killed stops after the same step as one that was not.
"""

from collections.abc import Mapping
from typing import Any

from bertjax.train.watch import Step, Watcher


class Patience(Watcher):
  """Watches the scores of a run, by its `config.best`.

  Attributes:
    averages: whether the steps that follow are averaged.
  """

  def __init__(self, best: Any, saved: Mapping[str, Any] | None = None, average: int = 0):
    """Goes on from the entry of `saved`; `average` is `config.optimizer.average`."""
    self._best, self._by = best, [best.metric, best.mode]
    self._lag = average
    saved = saved or dict(seen=0, step=0, score=None, worse=0)
    self.averages = saved.get('averages', False)
    self._seen, self._step = saved['seen'], saved['step']
    same = saved.get('by', self._by) == self._by  # scores of another kind say nothing of this one's
    self._score, self._worse = (saved['score'], saved['worse']) if same else (None, 0)
    self._before = list(saved.get('before', ())) if same else []  # the numbers among the scores

  def look(self, step: int, scores: Mapping[str, float]) -> None:
    """Counts the evaluation after a step, unless it was counted before. A score that equals the
    best one, or that is no number, is not better; without `config.best.metric` it counts for
    nothing."""
    score = scores.get(self._best.metric)
    if score is None or step <= self._seen:
      return
    self._seen = step
    sign = 1.0 if self._best.mode == 'max' else -1.0
    is_number = score == score
    if is_number and (self._score is None or sign * score > sign * self._score):
      self._step, self._score, self._worse = step, float(score), 0
    else:
      self._worse += 1
    if self._lag and not self.averages and is_number:
      old = [sign * each for each in self._before[: -self._lag]]
      self.averages = bool(old) and sign * score < max(old)
      self._before.append(float(score))

  @property
  def over(self) -> bool:
    """True if the run ends early: `best.patience` evaluations in a row were no better."""
    return bool(self._best.patience) and self._worse >= self._best.patience

  @property
  def said(self) -> str:
    """Why it ends, for people."""
    better = 'above' if self._best.mode == 'max' else 'below'
    since = (
      'was a number in none'
      if self._score is None
      else f'was not {better} {self._score:.4f}, its value after step {self._step}, in any'
    )
    return (
      f'{self._best.metric} {since} of the last {self._worse} evaluations '
      f'(config.best.patience={self._best.patience})'
    )

  def saved(self, step: Step, state: Any) -> dict[str, Any]:
    """Returns what was counted so far."""
    counted = dict(seen=self._seen, step=self._step, score=self._score, worse=self._worse)
    if self._lag:
      counted |= dict(before=self._before, averages=self.averages)
    return dict(patience=dict(by=self._by, **counted))
