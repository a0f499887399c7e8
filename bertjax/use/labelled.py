"""Logits of heads that were fine-tuned, as answers with probabilities."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertjax.use.answers import Answer, Choice, Label, Tag


def label(logits_C: np.ndarray, classes: Sequence[str]) -> Label:
  """Returns the likeliest class; without classes the number."""
  if not classes:
    return Label(float(logits_C[0]), {})
  p_C = _softmax(logits_C)
  return Label(classes[int(p_C.argmax())], dict(zip(classes, p_C.tolist(), strict=True)))


def tags(logits_nC: np.ndarray, names: Sequence[str]) -> list[Tag]:
  """Returns the likeliest tag of each word."""
  return [Tag(names[int(p_C.argmax())], float(p_C.max())) for p_C in _softmax(logits_nC)]


def choice(logits_G: np.ndarray) -> Choice:
  """Returns the likeliest of some choices."""
  p_G = _softmax(logits_G)
  return Choice(int(p_G.argmax()), p_G.tolist())


def answer(found: Any, threshold: float | None) -> Answer:
  """Returns the answer of a `bertjax.evals.squad.decoding.Decoded`, with its share of the likeliest
  ones. Above the threshold of the odds there is none; None: there always is one."""
  scores = [each.score for each in found.candidates]
  if threshold is not None:
    scores.append(found.null)
  p_n = _softmax(np.array(scores or [0.0]))
  odds = None if threshold is None else found.odds
  if text := found.answer(threshold):
    return Answer(text, found.candidates[0].begin, float(p_n[0]), odds)
  return Answer('', None, float(p_n[-1]), odds)


def _softmax(logits: np.ndarray) -> np.ndarray:
  """float64, over the last axis."""
  p = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
  return p / p.sum(-1, keepdims=True)
