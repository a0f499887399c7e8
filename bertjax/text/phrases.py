"""Phrases and entities of a text, by a lexicon or a segmenter, as units over its tokens.

--lexicon=FILES         one entry a line; what follows a TAB is ignored. The longest entry that
                        begins at a place wins, and the next search begins after it. An entry
                        begins and ends between words, or anywhere in scripts without spaces.
                        Entries of one character make no unit: they are words as they are.
--segmenter=MODULE:FUNCTION   text -> its pieces in order, strings of the text, or (start, end)
                        pairs of characters; every piece is a unit. E.g. jieba:lcut
--segmenter=capitals    runs of capitalised words inside a sentence, without its first word: a
                        rough stand-in for an entity tagger, for English
"""

import functools
import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from bertjax import registry
from bertjax.errors import UserError
from bertjax.text import files

Spans = list[tuple[int, int]]  # of characters, ascending, apart from each other
CONTINUES, WORD, FOUND = range(3)

_SPACELESS = re.compile(
  '[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf'
  '\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]'
)
_CAPITALS = re.compile(r"\b[A-Z][\w'’.-]*(?: [A-Z][\w'’.-]*)*")


@functools.cache
def finder(lexicon: str, segmenter: str) -> Callable[[str], Spans] | None:
  """Returns the function that finds units in a text; None if neither argument is given. Raises
  UserError if both are given, the lexicon has no entries, or there is no such segmenter."""
  if lexicon and segmenter:
    raise UserError(f'expected --lexicon or --segmenter, got both: {lexicon} and {segmenter}')
  if lexicon:
    return Lexicon(lexicon).find
  if segmenter == 'capitals':
    return _capitals
  if not segmenter:
    return None
  module, _, function = segmenter.partition(':')
  try:
    found = getattr(registry.load(module, '--segmenter'), function)
  except (ImportError, AttributeError, ValueError) as error:
    raise UserError(
      f'--segmenter={segmenter}: expected capitals, or MODULE:FUNCTION that can be imported '
      f'({error})'
    ) from error
  return functools.partial(_segment, segmenter, found)


class Lexicon:
  """Entries, found by their first two characters and their lengths."""

  def __init__(self, pattern: str):
    entries = {
      line.decode('utf-8').partition('\t')[0].strip()
      for path in files.find_files(pattern)
      for line in files.read_lines(path)
    }
    self._entries = {entry for entry in entries if len(entry) > 1}
    if not self._entries:
      raise UserError(f'{pattern}: expected entries of two characters or more, one a line')
    lengths: dict[str, set[int]] = {}
    for entry in self._entries:
      lengths.setdefault(entry[:2], set()).add(len(entry))
    self._lengths = {start: sorted(sizes, reverse=True) for start, sizes in lengths.items()}

  def find(self, text: str) -> Spans:
    """Returns where entries are, from left to right."""
    spans, at = [], 0
    while at < len(text) - 1:
      sizes = self._lengths.get(text[at : at + 2], ())
      ends = (at + size for size in sizes if at + size <= len(text) and _between_words(text, at))
      is_entry = lambda end, at=at: text[at:end] in self._entries and _between_words(text, end)
      end = next(filter(is_entry, ends), at)
      if end > at:
        spans.append((at, end))
      at = max(end, at + 1)
    return spans


def unit_starts(
  flat: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
  texts: Sequence[str],
  spans: Iterable[Spans],
  word_starts: np.ndarray,
) -> np.ndarray:
  """Carries units from characters to the tokens of `Vocabulary.encode_spans`. Returns uint8 per
  token: 2 for the first that touches a span, 0 for the others in it; elsewhere 1 where a word
  begins and behind a span, else 0. A text begins with 1 or 2."""
  token_n, length_T, begin_n, end_n = flat
  base_T = np.cumsum([0] + [len(text) for text in texts])[:-1]
  base_n = np.repeat(base_T, length_T)
  first_n = np.zeros(len(token_n), bool)
  first_n[(np.cumsum(length_T) - length_T)[length_T > 0]] = True
  found = [
    (int(base) + a, int(base) + b)
    for base, of_text in zip(base_T, spans, strict=True)
    for a, b in of_text
  ]
  start_k, stop_k = np.array([(-1, -1), *found]).T  # the first one is none
  span_n = np.searchsorted(start_k, base_n + end_n, 'left') - 1
  span_n[(stop_k[span_n] <= base_n + begin_n) | (end_n <= begin_n)] = 0
  before_n = np.append(0, span_n[:-1])
  unit_n = (word_starts[token_n] | first_n | (before_n > 0)).astype(np.uint8)
  inside_n = span_n > 0
  unit_n[inside_n] = np.where(span_n == before_n, CONTINUES, FOUND)[inside_n]
  return unit_n


def _between_words(text: str, at: int) -> bool:
  if at in (0, len(text)) or not (text[at - 1].isalnum() and text[at].isalnum()):
    return True
  return bool(_SPACELESS.match(text[at - 1]) or _SPACELESS.match(text[at]))


def _capitals(text: str) -> Spans:
  spans = []
  for match in _CAPITALS.finditer(text):
    start, stop = match.span()
    if not any(map(str.isalnum, text[:start])):  # the first word of a sentence says nothing
      start = text.find(' ', start, stop) + 1 or stop
    stop -= len(text[start:stop]) - len(text[start:stop].rstrip(".'’-"))
    if stop - start > 1:
      spans.append((start, stop))
  return spans


def _segment(name: str, function: Callable, text: str) -> Spans:
  pieces = list(function(text))
  spans, at = [], 0
  for piece in pieces:
    if isinstance(piece, str):
      start = text.find(piece, at)
      stop = start + len(piece)
      if not piece.strip():
        continue
    else:
      start, stop = piece
    if not at <= start < stop <= len(text):
      raise UserError(
        f'--segmenter={name} returned {piece!r} for {text[:60]!r}: expected pieces of the text, or '
        '(start, end) of them, in order and apart from each other'
      )
    spans.append((start, stop))
    at = stop
  return spans
