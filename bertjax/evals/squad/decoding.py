"""From the scores of tokens to answers (google-research/bert, run_squad.py:write_predictions).

Of each window the `best` likeliest first and last tokens are paired. A pair is a candidate if both
lie in the text, in this order, no more than `longest` tokens apart, and if none of the question's
windows shows more around the first of them. The candidates of all windows are ranked by the sum of
their two scores. That there is no answer scores what [CLS] does, in the window where it is least.

With `config.model.answers` each of the likeliest first tokens is paired with last tokens of its
own, the scores are log-probabilities, and the odds of no answer are what the head says of them,
again in the window where they are least (zihangdai/xlnet, run_squad.py:write_predictions, which
leaves out the last token of each window; google-research/electra, finetune/qa/qa_metrics.py).

An answer is the text as it stands, from the first character of its first token to the last of its
last. These are the answers of the original, which finds them by aligning words and pieces.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bertjax.examples.labelled.spans import Context, Window
from bertjax.types import Beam

NOTHING = 0.0  # the score of the answer '' where no pair is a candidate


class Limits(NamedTuple):
  """Limits of the answers that are considered."""

  best: int  # number of first and of last tokens to pair in a window, and of candidates to keep
  longest: int  # most tokens of an answer


class Candidate(NamedTuple):
  """A possible answer."""

  text: str  # of it
  begin: int  # its first character
  score: float  # sum of the logits of its first and its last token


class Decoded(NamedTuple):
  """The answers found to one question."""

  # answers, the likeliest first, no text twice; () if no pair of tokens is one
  candidates: tuple[Candidate, ...]
  null: float  # score of having no answer, on the scale of the candidates' scores
  # of having no answer: by how much that scores more than the best candidate, or with
  # `config.model.answers` its log-odds
  odds: float

  def answer(self, threshold: float | None) -> str:
    """Returns the best candidate; '' where there is none, or where the odds are above the
    threshold. Without a threshold the question has an answer."""
    if not self.candidates or (threshold is not None and self.odds > threshold):
      return ''
    return self.candidates[0].text


def decode(
  rows: Sequence[Window],
  found: Sequence[Context],
  said: Sequence[np.ndarray | Beam],
  limits: Limits,
) -> list[Decoded]:
  """Decodes an answer to each question from its windows, one after the other, and what was `said`
  of each: float32 logits [T, 2] of at least its tokens, or the `Beam` of that row."""
  numbered = zip(rows, said, strict=True)
  return [
    _decoded([row for row, _ in some], found[number], [scores for _, scores in some], limits)
    for number, group in itertools.groupby(numbered, key=lambda each: each[0].question)
    for some in [list(group)]
  ]


def _decoded(
  rows: Sequence[Window], context: Context, said: Sequence[np.ndarray | Beam], limits: Limits
) -> Decoded:
  ranked = [_ranked(row, scores, limits.best) for row, scores in zip(rows, said, strict=True)]
  pairs = [
    _fitting(row, shown_n, *some, limits.longest)
    for row, shown_n, some in zip(rows, most_context(rows), ranked, strict=True)
  ]
  first_n, last_n, score_n = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
  candidates: dict[str, Candidate] = {}
  for i in np.argsort(-score_n, kind='stable'):
    if len(candidates) == limits.best:
      break
    begin, end = int(context.begin_n[first_n[i]]), int(context.end_n[last_n[i]])
    text = context.text[begin:end]
    candidates.setdefault(text, Candidate(text, begin, float(score_n[i])))
  return Decoded(tuple(candidates.values()), *_null(rows, said, list(candidates.values())))


def _null(
  rows: Sequence[Window], said: Sequence[np.ndarray | Beam], candidates: Sequence[Candidate]
) -> tuple[float, float]:
  """Returns the score and the odds of having no answer."""
  scores = [each.score for each in candidates] or [NOTHING]
  if isinstance(said[0], Beam):
    odds = min(float(beam.none_B) for beam in said if isinstance(beam, Beam))
    return odds + float(np.logaddexp.reduce(scores)), odds
  pairs = zip(rows, said, strict=True)
  null = min(float(logits_T2[row.cls].astype(np.float64).sum()) for row, logits_T2 in pairs)
  return null, null - scores[0]


def _ranked(
  row: Window, said: np.ndarray | Beam, best: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """First and last columns, and scores, of the pairs of a window, by the rank of the first and then
  the last."""
  if isinstance(said, Beam):
    start_n = np.asarray(said.start_column_BK[:best])
    end_nn = np.asarray(said.end_column_BKK[:best, :best])
    score_nn = np.asarray(
      said.start_BK[:best, None].astype(np.float64) + said.end_BKK[:best, :best]
    )
    return np.repeat(start_n, end_nn.shape[1]), end_nn.ravel(), score_nn.ravel()
  logits_T2 = said[: len(row.id_n)].astype(np.float64)
  start_n, end_n = np.argsort(-logits_T2, axis=0, kind='stable')[:best].T
  start_n, end_n = (np.repeat(start_n, len(end_n)), np.tile(end_n, len(start_n)))
  return start_n, end_n, logits_T2[start_n, 0] + logits_T2[end_n, 1]


def _fitting(
  row: Window,
  shown_n: np.ndarray,
  start_n: np.ndarray,
  end_n: np.ndarray,
  score_n: np.ndarray,
  longest: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """First and last tokens of the text, and scores, of those pairs that are candidates."""
  stop = row.column + row.stop - row.first
  fits_n = (start_n >= row.column) & (start_n <= end_n) & (end_n < stop)
  fits_n &= end_n - start_n < longest
  start_n, end_n, score_n = start_n[fits_n], end_n[fits_n], score_n[fits_n]
  most_n = shown_n[start_n - row.column]
  shift = row.first - row.column
  return start_n[most_n] + shift, end_n[most_n] + shift, score_n[most_n]


def most_context(rows: Sequence[Window]) -> list[np.ndarray]:
  """Returns, for each window of a question, the tokens that it shows with more context than any
  other window: bool, one for each token of its text. A token's context is its shorter side; ties go
  to the longer window, then to the earlier one."""
  if len(rows) == 1:
    return [np.ones(rows[0].stop - rows[0].first, bool)]
  token_n = np.arange(rows[-1].stop)
  first_W1 = np.array([[row.first] for row in rows])
  stop_W1 = np.array([[row.stop] for row in rows])
  context_Wn = np.minimum(token_n - first_W1, stop_W1 - 1 - token_n)
  score_Wn = np.where(context_Wn < 0, -np.inf, context_Wn + 0.01 * (stop_W1 - first_W1))
  best_n = score_Wn.argmax(0)
  return [best_n[row.first : row.stop] == number for number, row in enumerate(rows)]
