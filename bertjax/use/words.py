"""Guesses of a model about the words of texts: blanks, likelihoods, tokens that were replaced."""

import math
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bertjax.errors import UserError
from bertjax.evals.fill_mask import likeliest
from bertjax.models.layers.contracts import PairModel
from bertjax.models.layers.heads import all_scores
from bertjax.objectives import lm
from bertjax.text import sentences as sentences_lib
from bertjax.text.sentences import Row
from bertjax.types import Array, Batch, Variables
from bertjax.use import nets
from bertjax.use.answers import Candidate, Judged, Score
from bertjax.use.batches import Runner
from bertjax.use.texts import Texts
from bertjax.vocab.vocabulary import Vocabulary


class Words:
  """The methods of a `bertjax.Model` that its pretraining has; see there for `cut` and `first`."""

  source: pathlib.Path
  net: nets.Net
  _texts: Texts
  runner: Runner

  @property
  def vocabulary(self) -> Vocabulary:
    """The vocabulary that encodes its texts."""
    return self._texts.vocabulary

  def fill(
    self, texts: Sequence[str], top: int = 5, cut: bool = False, first: int = 1
  ) -> list[list[list[Candidate]]]:
    """Returns the likeliest tokens for each blank of each text. Raises UserError: a model without a
    head for words, or a causal one; a text without a blank, or too long.

    Args:
      texts: each with one or more [MASK], or the vocabulary's own mask token.
      top: how many.
    """
    self._require_words('fill in blanks')
    if self.net.model.causal:
      raise UserError(
        f'{self.source} reads from left to right and sees nothing behind a blank: expected a '
        'masked model to fill it in; this one scores texts'
      )
    if not isinstance(top, int | np.integer) or top < 1:
      raise UserError(f'expected at least one candidate for each blank, got top={top}')
    found = self._texts.with_blanks(texts, cut, first)
    size = self.vocabulary.size
    top = min(int(top), size)
    rows = [Row(sentence.id_n, sentence.blanks) for sentence in found]
    tops = lambda v, batch: likeliest(all_scores(self.net.words(v, batch)), top, size)
    answers = self.runner.run(('fill', top), tops, rows)
    candidates = lambda prob_C, id_C: [
      Candidate(self._texts.piece(i), int(i), float(p), self._texts.text(i))
      for i, p in zip(id_C, prob_C, strict=True)
    ]
    return [
      [candidates(prob_PC[slot], id_PC[slot]) for slot in range(len(sentence.blanks))]
      for sentence, (prob_PC, id_PC) in zip(found, answers, strict=True)
    ]

  def score(self, texts: Sequence[str], cut: bool = False, first: int = 1) -> list[Score]:
    """Scores each text by its likelihood: see `Score`. Special tokens around it are not scored.
    Raises UserError: a model without a head for words, or without a mask token; a text that is too
    long."""
    self._require_words('score texts')
    mask: Any = self.vocabulary.special['mask']  # of causal models not read
    found = self._texts.plain(texts, cut, first)
    if self.net.model.causal:
      rows = [[sentences_lib.continued(sentence)] for sentence in found]
    else:
      rows = [sentences_lib.blanked(sentence, mask) for sentence in found]

    def likelihood(variables: Variables, batch: Batch) -> Array:
      nll_BP, _ = lm.score(self.net.words(variables, batch), batch['target_BP'])
      return -jnp.sum(nll_BP * batch['weight_BP'], 1)

    values = iter(self.runner.run('score', likelihood, [row for each in rows for row in each]))
    scores = []
    for each in rows:
      total = math.fsum(float(next(values)) for _ in each)
      tokens = sum(len(row.columns) for row in each)
      scores.append(Score(total, math.exp(-total / tokens) if tokens else None, tokens))
    return scores

  def replaced(self, texts: Sequence[str], cut: bool = False, first: int = 1) -> list[list[Judged]]:
    """For each token of each text the probability that another stood there (ELECTRA). Raises
    UserError: a model without a discriminator; a text that is too long."""
    if not self.net.can('replaced'):
      raise UserError(
        f'{self.source}, of config.model.name={self.net.name!r}, has no discriminator to find '
        'replaced tokens: expected an ELECTRA'
      )
    found = self._texts.plain(texts, cut, first)
    rows = [Row(sentence.id_n) for sentence in found]
    judge = lambda v, batch: jax.nn.sigmoid(self.net.read(v, batch)['rtd_BT'])
    answers = self.runner.run('replaced', judge, rows)
    return [
      [
        Judged(self._texts.piece(number), int(number), float(prob))
        for number, prob in zip(s.id_n[s.begin : s.end], prob_T[s.begin : s.end], strict=True)
      ]
      for s, prob_T in zip(found, answers, strict=True)
    ]

  def _require_words(self, what: str) -> None:
    if not self.net.can('word'):
      raise UserError(
        f'{self.source}, of config.model.name={self.net.name!r}, has no head for words and cannot '
        f'{what}: expected a model with one; this one embeds texts'
      )
    if isinstance(self.net.model, PairModel):
      raise UserError(
        f'{self.source}, of config.model.name={self.net.name!r}, scores the words of a second text '
        f'and cannot {what}: this one embeds and writes texts (bertjax.generate)'
      )
    if self.vocabulary.special['mask'] is None and not self.net.model.causal:
      raise UserError(
        f'{self.source}, of config.model.name={self.net.name!r}, has no mask token in its '
        f'vocabulary and cannot {what}: expected one with it, or a causal model; this one embeds '
        'texts'
      )
