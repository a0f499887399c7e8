"""Text that spells a special token, `[MASK]` or `<s>`, stays text.

Most tokenizers can be told so. Where one still makes the special id of it, the text is cut behind
the first character of the name, and its parts are encoded on their own.
"""

import itertools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple


class Encoding(NamedTuple):
  """The ids of a text, and the characters (begin, end) that each covers."""

  ids: list[int]
  offsets: list[tuple[int, int]]


def names(pieces: Sequence[str], special: Mapping[str, int | None]) -> list[str]:
  """Returns the special tokens as a text might spell them; one of a single character is plain
  text."""
  ids = dict.fromkeys(i for i in special.values() if i is not None)
  return [pieces[i] for i in ids if len(pieces[i]) > 1]


def keep(coder: Mapping[str, Any], index: Mapping[str, int]) -> Mapping[str, Any]:
  """Returns a coder that never makes a special id of text."""
  encode, spans = coder['_encode'], coder.get('_spans')
  made = [
    name
    for name, i in index.items()
    if any(i in ids for ids in encode([name, f'a {name} b', f'a{name}b']))
    and not any(i in ids for ids in encode([name[:1], name[1:]]))  # unknown letters
  ]
  if not made:
    return coder
  pattern = re.compile('|'.join(map(re.escape, made)))
  return dict(
    coder,
    _encode=lambda texts: _cut(encode, pattern, texts, lambda cuts, ids: sum(ids, [])),
    _spans=spans and (lambda texts: _cut(spans, pattern, texts, _joined)),
  )


def with_symbols(
  encode: Callable, index: Mapping[str, int], always: Collection[str] = ()
) -> Callable:
  """Makes an `_encode` to which symbols, name -> id, are tokens, and what is between them texts;
  those that it knows itself are left to it, but for those that are `always` cut out."""
  names = [n for n, i in index.items() if n in always or i not in encode([f'a{n}b'])[0]]
  pattern = re.compile(f'({"|".join(map(re.escape, sorted(names, key=len, reverse=True)))})')

  def whole(texts: Sequence[str]) -> list[list[int]]:
    if not any(map(pattern.search, texts)):
      return encode(texts)
    cut = [pattern.split(text) for text in texts]
    between = iter(encode([part for parts in cut for part in parts[::2]]))
    ids = lambda parts: ([index[p]] if n % 2 else next(between) for n, p in enumerate(parts))
    return [[*itertools.chain.from_iterable(ids(parts))] for parts in cut]

  return whole if names else encode


def _parts(pattern: re.Pattern[str], text: str) -> list[int]:
  """Returns the bounds of the parts of a text, cut so that none of them holds a name."""
  cuts, start = [0], 0
  while match := pattern.search(text, start):
    start = match.start() + 1
    cuts.append(start)
  return [*cuts, len(text)]


def _cut(function: Callable, pattern: re.Pattern[str], texts: Sequence[str], join: Callable) -> Any:
  """Answers as a function of texts; of a text with the pattern, join(its cuts, their answers)."""
  found = list(function(texts))
  for number, text in enumerate(texts):
    if pattern.search(text):
      cuts = list(itertools.pairwise(_parts(pattern, text)))
      found[number] = join(cuts, function([text[a:b] for a, b in cuts]))
  return found


def _joined(cuts: Sequence[tuple[int, int]], parts: Sequence[Any]) -> Encoding:
  pairs = zip(cuts, parts, strict=True)
  offsets = [(a + i, a + j) for (a, _), part in pairs for i, j in part.offsets]
  return Encoding([i for part in parts for i in part.ids], offsets)
