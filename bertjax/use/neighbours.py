"""Nearest neighbours of a word in its context: which tokens of a text are used as it is (Peters et
al. 2018, table 4: 'play')."""

import heapq
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bertjax.errors import UserError
from bertjax.use import vectors

if TYPE_CHECKING:  # its flags are the commands'
  from bertjax.use.flags import Part

COUNT = 10


class Neighbour(NamedTuple):
  """A token of a text."""

  similarity: float  # cosine of its vector and that of the word that is asked for
  line: int  # number of its text
  text: str  # the tokens of its text, it between asterisks


def parsed(text: str) -> tuple[str, str, str]:
  """Returns what stands before the word between asterisks, it, and what stands behind it. Raises
  UserError: no such word, or not one."""
  found = re.fullmatch(r'([^*]*)\*([^*\s][^*]*)\*([^*]*)', text)
  if not found:
    raise UserError(
      f"--neighbours: expected one word between asterisks, as in 'a *play* of light', got {text!r}"
    )
  return found[1], found[2], found[3]


def nearest(
  model: Any, asked: tuple[str, str, str], parts: 'Iterable[Part]', layer: int, cut: bool
) -> list[Neighbour]:
  """Returns the COUNT tokens of some texts whose vectors of a layer of a `bertjax.Model` are
  nearest to that of the word of a `parsed` text, of several tokens their mean; texts that are the
  same are passed over. Raises UserError: the word has no token that the model takes."""
  before, word, behind = asked
  text = before + word + behind
  columns, _ = _columns(model, [text, before.rstrip(), before + word], cut)
  own_n = columns[0][len(columns[1]) : len(columns[2])]
  if not len(own_n):
    raise UserError(
      f"{word!r} has no token of its own, or lies past the model's maximum length: expected "
      'another word, or a shorter text'
    )
  query_D = model.embed([text], 'none', layer, cut)[0][own_n].mean(0)
  query_D = vectors.normalized(query_D)
  best: list[tuple[float, int, int, list[str]]] = []
  for part in parts:
    many, tokens = _columns(model, part.texts, cut, part.first)
    embedded = model.embed(part.texts, 'none', layer, cut, part.first)
    each = zip(part.texts, many, tokens, embedded, strict=True)
    for line, (own, column_n, token, x_TD) in enumerate(each, part.first):
      if own.strip() == text.strip():
        continue
      cosine_n = vectors.normalized(x_TD[column_n]) @ query_D
      words = [token[n] for n in column_n]
      scored = ((float(c), -line, place, words) for place, c in enumerate(cosine_n))
      best = heapq.nlargest(COUNT, [*best, *scored])
  said = lambda place, words: ' '.join(f'*{w}*' if n == place else w for n, w in enumerate(words))
  return [Neighbour(cosine, -line, said(place, words)) for cosine, line, place, words in best]


def _columns(
  model: Any, texts: list[str], cut: bool, first: int = 1
) -> tuple[list[np.ndarray], list[list[str]]]:
  """Returns the columns of the tokens of each text that are no marks around it, and all its
  tokens."""
  special = model.vocabulary.special
  marks = {model.vocabulary.pieces[i] for k, i in special.items() if i is not None and k != 'unk'}
  tokens = model.tokens(texts, cut, first)
  return [np.array([n for n, t in enumerate(row) if t not in marks], int) for row in tokens], tokens
