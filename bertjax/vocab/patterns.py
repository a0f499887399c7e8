"""Regular expressions of a tokenizer.json, which may come from anyone.

The Rust tokenizers match by backtracking, so a pattern can be written that takes for ever on a
short text. No check of a pattern finds all of these and nothing else. This one takes what published
tokenizers are made of, alternatives that are sequences of repeated characters and classes, and
refuses what makes backtracking exponential: a repeated group within which there is a choice, many
repetitions in a row, and references to what was matched.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from bertjax.errors import UserError

LONGEST = 4000  # characters of a pattern
_MOST_LOOPS = 2  # of one alternative; the time is a power of the text's length, and this is in it
_MOST_CHOICES = 8  # likewise; each may double the time
_LOOP = 16  # times; what may be repeated more often counts as a loop

_ESCAPE = re.compile(r'\\(?:[pP]\{[^}]*\}|x\{[^}]*\}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)', re.DOTALL)
_CLASS = re.compile(r'\[\^?\]?[^\[\]]*\]')  # without another one in it
_GROUP = re.compile(r'\((?:\?(?:[ims-]+(?::|(?=\)))|<?[=!]|>|:))?([^()]*)\)')  # likewise
_TIMES = r'(?:[*+?][?+]?+|\{\d*,?\d*\}\??+)'
_PARTS = re.compile(rf'((?!{_TIMES}).|)({_TIMES})?', re.DOTALL)  # a letter, how often it comes
_REPEATS = {'': (1, 1), '?': (0, 1), '*': (0, 10**9), '+': (1, 10**9)}
_FIRST = 0xF0000  # code of what stands for the first group


class _Refused(Exception):
  """The reason to refuse a pattern, which may run away or has an unknown form."""


class _Group(NamedTuple):
  """The inside of a pair of brackets, or the whole pattern."""

  loops: int  # of the alternative with most of them
  choices: int  # likewise
  varies: bool  # True if it can match in more than one way


def check(tokenizer_json: Any) -> None:
  """Looks at the patterns of a tokenizer.json, as it was read, before anything is matched.
  UserError: one of them is none of those that are known to end soon."""
  for part in ('normalizer', 'pre_tokenizer', 'post_processor', 'decoder'):
    inner = tokenizer_json.get(part) if isinstance(tokenizer_json, dict) else None
    for pattern in _patterns(inner):
      try:
        _check(pattern)
      except _Refused as fault:
        raise UserError(
          f'its {part} has the regular expression {json.dumps(pattern)[:200]}, which may run for '
          f'ever on some text: {fault}. Expected alternatives of characters and classes, each '
          'repeated for itself: write it so, or take another tokenizer.json'
        ) from None


def _patterns(value: Any) -> Iterator[str]:
  """Yields what stands at a key `Regex`, at any depth."""
  if isinstance(value, dict) and 'Regex' in value:
    yield str(value['Regex'])
  for inner in value.values() if isinstance(value, dict) else value or ():
    if isinstance(inner, dict | list):
      yield from _patterns(inner)


def _check(pattern: str) -> None:
  """Puts a letter in the place of each escape, class and group, from the innermost on."""
  if len(pattern) > LONGEST:
    raise _Refused(f'it has {len(pattern)} characters')
  text = _ESCAPE.sub(lambda found: found[0] if found[0][1] in '123456789kg' else 'x', pattern)
  count, groups = 1, {}
  while count:
    text, count = _CLASS.subn('x', text)
  if found := re.search(r'\\.', text):
    raise _Refused(f'{found[0]} refers to what was matched')
  if found := re.search(rf'{_TIMES}(?=[*+?]|\{{\d*,?\d*\}})', text):
    raise _Refused(f'{text[found.end() :][:8]!r} repeats a repetition')
  while match := _GROUP.search(text):
    letter = chr(_FIRST + len(groups))
    groups[letter] = _measured(match[1], groups)
    text = text[: match.start()] + letter + text[match.end() :]
  if wrong := re.search(r'[()\[\\]', text):
    raise _Refused(f'{text[wrong.start() :][:8]!r} is none of the forms that we know')
  whole = _measured(text, groups)
  if whole.loops > _MOST_LOOPS or whole.choices > _MOST_CHOICES:
    raise _Refused(f'it has {whole.loops} repetitions and {whole.choices} choices in a row')


def _measured(text: str, groups: dict[str, _Group]) -> _Group:
  """Returns what is within brackets, of letters that stand for the groups in it."""
  if text.startswith('?'):
    raise _Refused(f'({text[:8]} is none of the forms that we know')
  found = []
  for alternative in text.split('|'):
    loops = choices = 0
    for part, times in _PARTS.findall(alternative):
      group = groups.get(part, _Group(0, 0, False))
      loops, choices = loops + group.loops, choices + group.choices
      bare = times.rstrip('?+') or times[:1]
      if bare in _REPEATS:
        least, most = _REPEATS[bare]
      else:
        low, comma, high = bare[1:-1].partition(',')
        least, most = int(low or 0), int(high or 10**9) if comma else int(low or 0)
      if most > 1 and group.varies:
        raise _Refused(f'{times} repeats a group that can match in several ways')
      loops += most > _LOOP and least != most
      choices += most <= _LOOP and least != most
    found.append((loops, choices))
  loops, choices = (max(each) for each in zip(*found, strict=True))
  return _Group(loops, choices, len(found) > 1 or loops + choices > 0)
