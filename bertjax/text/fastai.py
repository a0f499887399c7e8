"""The words of fastai's language models: python -m bertjax.text.fastai < TEXT > WORDS

The rules of fastai 2 (text/core.py, defaults.text_proc_rules) write a text without capitals, which
xxup and xxmaj stand for, and count what is repeated, xxrep characters and xxwrep words. Then spaCy
(pip install spacy) cuts it into words; a line of them is what vocabularies of words read. The mark
xxbos is left out: <eos>, the end of the line before, stands where it would.

  --version=1   the rules of fastai 1 (text/transform.py)
"""

import html
import re
import sys
from collections.abc import Callable, Iterable, Iterator

from bertjax.errors import UserError, door, package

MARKS = 'xxunk xxpad xxbos xxeos xxfld xxrep xxwrep xxup xxmaj'.split()
# What exports of web pages and WikiText leave -> the character; in this order.
_HTML = (
  ('#39;', "'"), ('amp;', '&'), ('#146;', "'"), ('nbsp;', ' '), ('#36;', '$'), (r'\n', '\n'),
  ('quot;', "'"), ('<br />', '\n'), (r'\"', '"'), ('<unk>', 'xxunk'), (' @.@ ', '.'),
  (' @-@ ', '-'), ('...', ' …'),
)  # fmt: skip


# Likewise in fastai 1.
_HTML_1 = (*_HTML[:-1], (' @,@ ', ','), ('\\', ' \\ '))


def fix_html(text: str, remains: Iterable[tuple[str, str]] = _HTML) -> str:
  """Returns a text without remains of HTML and of WikiText's marks."""
  for old, new in remains:
    text = text.replace(old, new)
  return html.unescape(text)


def _rule(pattern: str, new: Callable[[re.Match[str]], str]) -> Callable[[str], str]:
  return lambda text, found=re.compile(pattern): found.sub(new, text)


def _lower(mark: str) -> Callable[[re.Match[str]], str]:
  """Returns the mark before the word in small letters; a letter alone has none."""
  return lambda m: f'{m[1]}{f"{mark} " if len(m[2]) > 1 else ""}{m[2].lower()}'


# Name in fastai -> rule, in the order of their use.
RULES: dict[str, Callable[[str], str]] = dict(
  fix_html=fix_html,
  replace_rep=_rule(r'(\S)\1{2,}', lambda m: f' xxrep {len(m[0])} {m[1]} '),
  replace_wrep=_rule(
    r'(?:\s|^)(\w+)\s+((?:\1\s+)+)\1(\s|\W|$)',
    lambda m: f' xxwrep {len(m[2].split()) + 2} {m[1]} {m[3]}',
  ),
  spec_add_spaces=_rule(r'[/#\\]', lambda m: f' {m[0]} '),
  rm_useless_spaces=_rule(' {2,}', lambda m: ' '),
  replace_all_caps=_rule(r'(\s|^)([A-Z]+[^a-z\s]*)(?=\s|$)', _lower('xxup')),
  replace_maj=_rule(r'(\s|^)([A-Z][^A-Z\s]*)(?=\s|$)', _lower('xxmaj')),
  lowercase=lambda text: text.lower().strip(),
)
# Those of fastai 1: capitals are marked behind the cut, a word each (`marked`).
RULES_1: dict[str, Callable[[str], str]] = dict(
  fix_html=lambda text: re.sub(' {2,}', ' ', fix_html(text, _HTML_1)),
  replace_rep=_rule(r'(\S)\1{3,}', lambda m: f' xxrep {len(m[0])} {m[1]} '),
  replace_wrep=_rule(r'(\b\w+\W+)(\1{3,})', lambda m: f' xxwrep {len(m[2].split()) + 1} {m[1]} '),
  spec_add_spaces=_rule(r'[/#\n]', lambda m: f' {m[0]} '),
  rm_useless_spaces=RULES['rm_useless_spaces'],
)


def marked(found: Iterable[str]) -> Iterator[str]:
  """Yields words in small letters, xxup or xxmaj before those that had capitals."""
  for word in found:
    if word.isupper() and len(word) > 1:
      yield 'xxup'
    elif word[:1].isupper() and word[1:].islower():
      yield 'xxmaj'
    yield word.lower()


def cleaned(text: str, rules: dict[str, Callable[[str], str]] = RULES) -> str:
  """Returns a text by all rules, before it is cut into words."""
  for rule in rules.values():
    text = rule(text)
  return text


def words(lines: Iterable[str], first: bool = False) -> Iterator[list[str]]:
  """Yields the words of each line as spaCy cuts English, by the rules of fastai 2, or of the first.
  Raises UserError: spaCy is not there."""
  cut = package('spacy', "the cut of fastai's words").blank('en').tokenizer
  for mark in MARKS:
    cut.add_special_case(mark, [dict(ORTH=mark)])
  for line in lines:
    text = cleaned(line, RULES_1 if first else RULES)
    found = [token.text for token in cut(text) if not token.is_space]
    yield [*marked(found)] if first else found


if __name__ == '__main__':
  with door('bertjax.text.fastai'):
    if sys.argv[1:] in (['-h'], ['--help']):
      print(__doc__)
    elif sys.argv[1:] not in ([], ['--version=1']):
      raise UserError(
        f'expected --version=1 or nothing, the text is read: < TEXT > WORDS; got {sys.argv[1]}'
      )
    else:
      try:
        for found in words(open(0, encoding='utf-8', closefd=False), bool(sys.argv[1:])):
          print(*found)
      except UnicodeDecodeError as error:
        raise UserError(f'expected a text in UTF-8: {error}') from error
