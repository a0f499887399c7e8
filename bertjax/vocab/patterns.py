"""Regular expressions of a tokenizer.json, which may come from anyone.

The Rust tokenizers match by backtracking, so a pattern can be written that takes for ever on a
short text. No check of a pattern finds all of these and nothing else. This one takes what published
tokenizers are made of, alternatives that are sequences of repeated characters and classes, and
refuses what makes backtracking exponential: a repeated group within which there is a choice, many
repetitions in a row, and references to what was matched.
"""

import json
import re
from typing import Any

from bertjax.errors import UserError

LONGEST = 4000  # characters of a pattern
_MOST_LOOPS = 2  # of one alternative; the time is a power of the text's length, and this is in it
_MOST_CHOICES = 8  # likewise; each may double the time
_LOOP = 16  # times; what may be repeated more often counts as a loop

_TOKEN = re.compile(
  r"""
  (?P<escape>   \\ (?: [pP]\{[^}]*\} | x\{[^}]*\} | x[0-9a-fA-F]{2} | u[0-9a-fA-F]{4} | . ) )
  | (?P<open>   \( (?: \?[ims-]+: | \?[ims-]+\) | \?<?[=!] | \?> | \?: | (?!\?) ) )
  | (?P<close>  \) )
  | (?P<bar>    \| )
  | (?P<class>  \[ )
  | (?P<times>  [*+?] [?+]? | \{\d*,?\d*\} \?? )
  | (?P<plain>  [^\\()|\[*+?] )
  """,
  re.VERBOSE | re.DOTALL,
)


class _Group:
  """The inside of a pair of brackets, or the whole pattern."""

  def __init__(self):
    self.loops = self.choices = 0  # of the alternative with most of them
    self.varies = False  # True if it can match in more than one way
    self._here = [0, 0]
    self.last: _Group | None = None  # what a quantifier would repeat, if it is a group

  def end_alternative(self) -> None:
    """Takes the alternative that ends into account."""
    self.loops = max(self.loops, self._here[0])
    self.choices = max(self.choices, self._here[1])
    self.varies |= any(self._here)
    self._here = [0, 0]

  def add(self, loops: int, choices: int) -> None:
    """Counts some in this alternative."""
    self._here[0] += loops
    self._here[1] += choices


def check(tokenizer_json: Any) -> None:
  """Looks at the patterns of a tokenizer.json, as it was read, before anything is matched. Raises
  UserError if one of them is none of those that are known to end soon."""
  for part in ('normalizer', 'pre_tokenizer', 'post_processor', 'decoder'):
    inner = tokenizer_json.get(part) if isinstance(tokenizer_json, dict) else None
    for pattern in _patterns(inner):
      if fault := _fault(pattern):
        raise UserError(
          f'its {part} has the regular expression {json.dumps(pattern)[:200]}, which may run for '
          f'ever on some text: {fault}. Expected alternatives of characters and classes, each '
          'repeated for itself: write it so, or take another tokenizer.json'
        )


def _patterns(value: Any):
  """Yields what stands at a key `Regex`, at any depth."""
  if isinstance(value, dict):
    for key, inner in value.items():
      if key == 'Regex':
        yield str(inner)
      else:
        yield from _patterns(inner)
  elif isinstance(value, list):
    for inner in value:
      yield from _patterns(inner)


def _fault(pattern: str) -> str:
  """Returns the reason to refuse a pattern, which may run away or has an unknown form, or ''."""
  if len(pattern) > LONGEST:
    return f'it has {len(pattern)} characters'
  groups, at, kind = [_Group()], 0, None
  while at < len(pattern):
    match = _TOKEN.match(pattern, at)
    if match is None:
      return f'{pattern[at : at + 8]!r} is none of the forms that we know'
    before, (kind, text, at) = kind, (match.lastgroup, match[0], match.end())
    group = groups[-1]
    if kind == 'times':
      if before == kind:
        return f'{text} repeats a repetition'
      if fault := _repeat(group, text):
        return fault
      continue
    group.last = None
    if kind == 'escape' and re.match(r'\\[1-9kg]', text):
      return f'{text} refers to what was matched'
    if kind == 'class':
      at = _end_of_class(pattern, at)
    elif kind == 'bar':
      group.end_alternative()
      group.varies = True
    elif kind == 'open' and not text.endswith(')'):
      groups.append(_Group())
    elif kind == 'close':
      if len(groups) == 1:
        return 'a bracket is closed that was not opened'
      inner = groups.pop()
      inner.end_alternative()
      groups[-1].add(inner.loops, inner.choices)
      groups[-1].last = inner
  groups[0].end_alternative()
  if groups[0].loops > _MOST_LOOPS or groups[0].choices > _MOST_CHOICES:
    return f'it has {groups[0].loops} repetitions and {groups[0].choices} choices in a row'
  return ''


def _repeat(group: _Group, times: str) -> str:
  """Counts a quantifier of the last thing in a group; returns what is wrong with it, or ''."""
  bare = times.rstrip('?+') or times[0]
  if bare[0] == '{':
    low, comma, high = bare[1:-1].partition(',')
    least, most = int(low or 0), int(high or 10**9) if comma else int(low or 0)
  else:
    least, most = {'*': (0, 10**9), '+': (1, 10**9), '?': (0, 1)}[bare[0]]
  if most > 1 and group.last is not None and group.last.varies:
    return f'{times} repeats a group that can match in several ways'
  if least != most:
    group.add(most > _LOOP, most <= _LOOP)
  group.last = None
  return ''


def _end_of_class(pattern: str, at: int) -> int:
  """Returns the place behind [...], whose brackets may be nested; `at` is behind the first."""
  depth, first = 1, at + pattern.startswith('^', at)
  while at < len(pattern) and depth:
    letter = pattern[at]
    if letter == '\\':
      at += 1
    elif letter == '[':
      depth += 1
    elif letter == ']' and at > first:
      depth -= 1
    at += 1
  return at
