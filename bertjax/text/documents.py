"""Documents and what is known of their lines, as one string of bytes: a record.

A corpus with columns has records that begin with the value of each, in the order of COLUMNS, each
followed by U+001F; then comes the text. A corpus without columns has the text alone.

  language  'en', of the whole document; 'en de en', one for each of its lines that is not empty
            (verbatim: each line);
            or 'en+de': parallel text, whose lines say the same in these languages. They are not
            split into sentences, and the document is dropped where one of them is empty.
  role      '0 1 0', who speaks each line that is not empty, from 0 to 255; one for all; '' is 0
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from bertjax.errors import UserError, amount
from bertjax.text import sentence_split

ROLE = 'role'
COLUMNS = ('language', ROLE)
SEPARATOR = b'\x1f'
PARALLEL = '+'


class Sentences(NamedTuple):
  """A document, split."""

  texts: list[str]  # of its sentences
  values: dict[str, list[str]]  # column -> one per sentence, language names or digits
  parallel: bool  # whether it counts only as a whole


def blocks(parts: Iterable[bytes], least: int) -> Iterator[list[bytes]]:
  """Groups documents, or lines of one, greedily: each group but the last has so many bytes. Where a
  group ends follows from where it begins, so a resumed run groups as an uninterrupted one."""
  block, size = [], 0
  for part in parts:
    block.append(part)
    size += len(part)
    if size >= least:
      yield block
      block, size = [], 0
  if block:
    yield block


def join(text: bytes, values: Sequence[str]) -> bytes:
  """Makes a record. UserError: a value with the separator in it, or one that no UTF-8 holds."""
  if any(SEPARATOR.decode() in value for value in values):
    raise UserError(f'U+001F is no part of a language or role, got {values!r}')
  try:
    return SEPARATOR.join([*(value.encode() for value in values), text])
  except UnicodeEncodeError as error:
    raise UserError(f'a language or role is no UTF-8, got {error.object!r}') from error


def text_of(record: bytes, columns: Sequence[str]) -> bytes:
  """Returns the text of a record."""
  return record.split(SEPARATOR, len(columns))[-1] if columns else record


def split(text: str, values: Mapping[str, str], how: str, spaced: bool = False) -> Sentences:
  """Splits a document into 'lines', 'sentences' or 'verbatim' lines, each with its values; `spaced`
  is that of `split_sentences`. Raises UserError for values that do not fit the lines, a role that
  is no number, and no language."""
  names = values.get('language', '').split(PARALLEL)
  if len(names) > 1:
    texts = [line.strip() for line in text.split('\n')]
    parts = dict(values, language=' '.join(names))
    return Sentences(texts, {k: _spread(v, texts, k) for k, v in parts.items()}, True)
  lines = sentence_split.split_document(
    text, sentence_split.LINES if how == sentence_split.SENTENCES else how
  )
  if how != sentence_split.SENTENCES:
    return Sentences(lines, {k: _spread(v, lines, k) for k, v in values.items()}, False)
  texts = [sentence_split.split_sentences(line, spaced) for line in lines]
  spread = {
    k: [v for v, of_line in zip(_spread(value, lines, k), texts, strict=True) for _ in of_line]
    for k, value in values.items()
  }
  return Sentences([sentence for line in texts for sentence in line], spread, False)


def _spread(value: str, lines: list[str], name: str) -> list[str]:
  values = value.split() or (['0'] if name == ROLE else [])
  if not values:
    raise UserError(
      f'a document has no language; it begins with {_start(lines)!r}. Name one for every file or '
      'document of the text, or for none'
    )
  if len(values) not in (1, len(lines)):
    raise UserError(
      f'a document has {amount(len(lines), "lines")} and {amount(len(values), "values")} of '
      f'{name}: expected one for each line, or one for all. It begins with {_start(lines)!r}'
    )
  if name == ROLE and not all(v.isdecimal() and int(v) < 256 for v in values):
    raise UserError(
      f'expected roles from 0 to 255, got {value!r} in a document that begins with '
      f'{_start(lines)!r}'
    )
  return values if len(values) == len(lines) else values * len(lines)


def _start(lines: list[str]) -> str:
  return lines[0][:60] if lines else ''
