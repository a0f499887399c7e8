"""SQuAD's scores of answers: exact match and F1 of words (Rajpurkar et al. 2016, section 6.1; 2018,
section 5), equal to those of its evaluation programs for versions 1.1 and 2.0.

Texts are compared without capitals, punctuation, articles and further spaces. An answer's score is
the best that it has against one of the answers that people gave. The programs differ where nothing
of an answer is left ('the'): in 1.1 its f1 is 0 against any, 2.0 leaves out what people gave so.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bertjax.evals.squad.programs import Program, named

SQUAD = named('squad')


class Answered(NamedTuple):
  """A question with its answer."""

  golds: Sequence[str]  # texts that people gave; () where there is no answer
  text: str  # that the model gave, whether it believes in it or not
  odds: float  # by how much it believes more that there is no answer


def exact(gold: str, text: str, program: Program = SQUAD) -> float:
  """1 where both are the same words in the same order, else 0."""
  return float(program.whole(gold) == program.whole(text))


def f1(gold: str, text: str, program: Program = SQUAD) -> float:
  """Returns the harmonic mean of precision and recall of the words; where one has none, whether
  both do."""
  theirs, ours = program.words(gold), program.words(text)
  if not theirs or not ours:
    return float(theirs == ours)
  return 2 * program.same(theirs, ours) / (len(theirs) + len(ours))


def judge(
  found: Sequence[Answered], threshold: float | None, program: Program = SQUAD
) -> dict[str, float]:
  """Returns the scores of some answers, from 0 to 1: exact and f1. With a threshold of the odds,
  above which there is no answer (None: all have one, SQuAD 1.1), also these two of the questions
  that have an answer (has_answer_..), the share of the others that get none (no_answer), and
  best_exact and best_f1, which other thresholds reach, with the thresholds."""
  match, overlap = (lambda *pair, score=score: score(*pair, program) for score in (exact, f1))
  words = program.words
  if threshold is None:
    # `f1` of version 1.1: 0 where no word is in both, even where neither has any.
    kinds = dict(exact=match, f1=lambda gold, text: overlap(gold, text) if words(gold) else 0.0)
    best = lambda score, each: max((score(g, each.text) for g in each.golds), default=0.0)
    return {name: float(np.mean([best(s, each) for each in found])) for name, s in kinds.items()}
  kinds = dict(exact=match, f1=overlap)
  has_n = np.array([bool(each.golds) for each in found])
  asked = [([g for g in each.golds if words(g)] or [''], each) for each in found]
  raw = {
    name: np.array([max(score(gold, each.text) for gold in golds) for golds, each in asked])
    for name, score in kinds.items()
  }
  odds_n = np.array([each.odds for each in found])
  none_n = np.array([not each.text for each in found])
  scores = {}
  for name, raw_n in raw.items():
    score_n = np.where(odds_n > threshold, ~has_n, raw_n)
    scores[name] = float(score_n.mean())
    scores |= _mean(f'has_answer_{name}', score_n[has_n])
    scores |= _mean('no_answer', score_n[~has_n])
    best, at = best_threshold(raw_n, odds_n, has_n, none_n)
    scores |= {f'best_{name}': best, f'best_{name}_threshold': at}
  return scores


def best_threshold(
  score_n: np.ndarray, odds_n: np.ndarray, has_n: np.ndarray, none_n: np.ndarray
) -> tuple[float, float]:
  """Returns the best mean score that a threshold of the odds reaches, and the least such threshold.
  Each question has the score of its answer as it is, its odds, whether it has an answer, and
  whether the model's answer is ''. Equal odds are walked through one by one, as in the evaluation
  program, which may stop between two of them."""
  order_n = np.argsort(odds_n, kind='stable')
  gain_n = np.where(has_n, score_n, np.where(none_n, 0.0, -1.0))[order_n]
  total_n = np.count_nonzero(~has_n) + np.cumsum(gain_n)
  best = int(total_n.argmax())
  if total_n[best] <= np.count_nonzero(~has_n):
    return float(np.mean(~has_n)), 0.0
  return float(total_n[best] / len(score_n)), float(odds_n[order_n[best]])


def _mean(name: str, score_n: np.ndarray) -> dict[str, float]:
  return {name: float(score_n.mean())} if len(score_n) else {}


def names(no_answer: bool) -> frozenset[str]:
  """Returns the names of the scores that `judge` may give; `no_answer`: with a threshold."""
  kinds = ('exact', 'f1')
  if not no_answer:
    return frozenset(kinds)
  more = [f'{before}{name}' for name in kinds for before in ('has_answer_', 'best_')]
  return frozenset((*kinds, *more, 'no_answer', *(f'best_{name}_threshold' for name in kinds)))
