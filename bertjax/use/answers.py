"""Arguments and results of `bertjax.Model`, and logits of heads as answers with probabilities."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from bertjax.errors import UserError
from bertjax.examples.labelled.common.tagged import NONE, OUTSIDE, entities

Pool = Literal['mean', 'first', 'none']  # what of a text has a vector


class Candidate(NamedTuple):
  """A token for a blank."""

  token: str  # as the vocabulary spells it
  id: int  # its id
  probability: float  # of it among all tokens
  # what it is in a text, which a vocabulary of bytes spells otherwise; a part of a character is a
  # replacement character
  text: str


class Score(NamedTuple):
  """The likelihood of a text."""

  # sum over its tokens, in nats, of log p(token | all others), or of causal models log p(token |
  # those before it)
  log_likelihood: float
  perplexity: float | None  # exp(-log_likelihood / tokens); None without tokens
  tokens: int  # number of tokens scored


class Label(NamedTuple):
  """The class, or the number, of a text or a pair of texts."""

  # the likeliest class as its task spells it, or the number; of texts that may have several classes
  # those of a probability above .5
  label: str | float | list[str]
  probabilities: dict[str, float]  # of each class; {} of a number


class Tag(NamedTuple):
  """The tag of a word."""

  # the likeliest, as its task spells it. Of a word that a model has no room for it is O, and _
  # where tags are plain.
  tag: str
  probability: float | None  # of it among all tags; None of a word that was not read


class Choice(NamedTuple):
  """The likeliest of some choices."""

  choice: int  # its number, from 0
  probabilities: list[float]  # of each


class Answer(NamedTuple):
  """The answer to a question on a text."""

  text: str  # a part of the text as it stands; '' where there is no answer
  begin: int | None  # its first character; None of ''
  probability: float  # of it among the likeliest answers, and that there is none where that may be
  # by how much the score of having no answer is above that of the best one, which then is `text` or
  # would have been; None where all questions have answers
  odds: float | None


class Judged(NamedTuple):
  """A token of a text."""

  token: str  # as the vocabulary spells it
  id: int  # its id
  replaced: float  # probability that another token stood there


def label(logits_C: np.ndarray, classes: Sequence[str], several: bool = False) -> Label:
  """Returns the likeliest class, or with `several` all that are likely; without classes the
  number."""
  if not classes:
    return Label(float(logits_C[0]), {})
  sigmoid = lambda logits: np.exp(-np.logaddexp(0, -logits.astype(np.float64)))
  p_C = (sigmoid if several else _softmax)(logits_C)
  return _likely(dict(zip(classes, p_C.tolist(), strict=True)), several)


def check_beside(task: Mapping[str, Any], beside: Iterable[tuple[str, Any]]) -> None:
  """Compares the task of a model with those of some `bertjax.Model`s, each behind its path. Raises
  UserError: one has another task or other classes, in whatever order."""
  kind = lambda task: f'{task.get("name", "none")}{", any number of" * bool(task.get("several"))}'
  of = lambda task: (kind(task), {*task.get('classes', ())})
  for path, other in beside:
    if of(other.task) != of(task):
      shown = ', --workdir '.join(f'{a} {sorted(b)}' for a, b in map(of, (other.task, task)))
      raise UserError(f'--beside={path} has the task {shown}: expected the same classes in both')


def together(found: Sequence[Label]) -> Label:
  """Returns what several models of the same classes say of a text: the mean of their probabilities,
  or numbers."""
  names = found[0].probabilities
  if not names:
    return Label(float(np.mean([cast(float, each.label) for each in found])), {})
  mean = {name: float(np.mean([each.probabilities[name] for each in found])) for name in names}
  return _likely(mean, isinstance(found[0].label, list))


def _likely(p: dict[str, float], several: bool) -> Label:
  return Label([name for name in p if p[name] > 0.5] if several else max(p, key=p.__getitem__), p)


def tags(logits_nC: np.ndarray, names: Sequence[str]) -> list[Tag]:
  """Returns the likeliest tag of each word."""
  return [Tag(names[int(p_C.argmax())], float(p_C.max())) for p_C in _softmax(logits_nC)]


def tagged_text(text: str, words: Sequence[str], found: Sequence[Tag]) -> dict[str, Any]:
  """Returns the tags of a text with these words, in their order, as JSON has them; where they are
  B-X, I-X and O, `spans` has the entities: type, text, first character and the one behind the
  last."""
  names = [each.tag for each in found]
  said = dict(tokens=words, tags=names, probabilities=[each.probability for each in found])
  if any(name[:2] not in ('B-', 'I-') and name not in (OUTSIDE, NONE) for name in names):
    return said
  places, end = [], 0
  for word in words:
    begin = text.index(word, end)
    end = begin + len(word)
    places.append((begin, end))
  spans = []
  for kind, first, behind in entities([OUTSIDE if name == NONE else name for name in names]):
    begin, end = places[first][0], places[behind - 1][1]
    spans.append(dict(type=kind, text=text[begin:end], begin=begin, end=end))
  return said | dict(spans=spans)


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
