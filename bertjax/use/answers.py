"""Arguments and results of `bertjax.Model`."""

from typing import Literal, NamedTuple

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
  tokens: int  # number of tokens scored
  perplexity: float | None  # exp(-log_likelihood / tokens); None without tokens


class Label(NamedTuple):
  """The class, or the number, of a text or a pair of texts."""

  label: str | float  # the likeliest class as its task spells it, or the number
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
