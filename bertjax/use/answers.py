"""Arguments and results of `bertjax.Model`."""

from typing import Literal, NamedTuple

Pool = Literal['mean', 'first', 'none']  # what of a text has a vector


class Candidate(NamedTuple):
  """A token for a blank.

  Attributes:
    token: as the vocabulary spells it.
    id: its id.
    probability: of it among all tokens.
    text: what it is in a text, which a vocabulary of bytes spells otherwise; a part of a character
      is a replacement character.
  """

  token: str
  id: int
  probability: float
  text: str


class Score(NamedTuple):
  """The likelihood of a text.

  Attributes:
    log_likelihood: sum over its tokens, in nats, of log p(token | all others), or of causal models
      log p(token | those before it).
    tokens: number of tokens scored.
    perplexity: exp(-log_likelihood / tokens); None without tokens.
  """

  log_likelihood: float
  tokens: int
  perplexity: float | None


class Label(NamedTuple):
  """The class, or the number, of a text or a pair of texts.

  Attributes:
    label: the likeliest class as its task spells it, or the number.
    probabilities: of each class; {} of a number.
  """

  label: str | float
  probabilities: dict[str, float]


class Tag(NamedTuple):
  """The tag of a word.

  Attributes:
    tag: the likeliest, as its task spells it. Of a word that a model has no room for it is O, and
      _ where tags are plain.
    probability: of it among all tags; None of a word that was not read.
  """

  tag: str
  probability: float | None


class Choice(NamedTuple):
  """The likeliest of some choices.

  Attributes:
    choice: its number, from 0.
    probabilities: of each.
  """

  choice: int
  probabilities: list[float]


class Answer(NamedTuple):
  """The answer to a question on a text.

  Attributes:
    text: a part of the text as it stands; '' where there is no answer.
    begin: its first character; None of ''.
    probability: of it among the likeliest answers, and that there is none where that may be.
    odds: by how much the score of having no answer is above that of the best one, which then is
      `text` or would have been; None where all questions have answers.
  """

  text: str
  begin: int | None
  probability: float
  odds: float | None


class Judged(NamedTuple):
  """A token of a text.

  Attributes:
    token: as the vocabulary spells it.
    id: its id.
    replaced: probability that another token stood there.
  """

  token: str
  id: int
  replaced: float
