"""Sentences of tagged words: from columns as in CoNLL's files, and from tables and JSON lines.

Columns: a line for each word, an empty one behind each sentence. Fields stand between TABs where
the line has one, else between blanks. Lines that begin with -DOCSTART- end a sentence too, with an
empty line beside them or without. Passed over are, in .conllu, which alone has them, comments (#),
the ranges of words that are written as one (3-4) and words that are not written at all (3.1).
Elsewhere # is a word: tweets begin with it.
"""

import itertools
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from bertjax.errors import UserError, amount
from bertjax.examples.labelled.common import records
from bertjax.examples.labelled.common.records import Record
from bertjax.text import compressed, kinds

_BLANKS = re.compile(' +')


class Sentence(NamedTuple):
  """A sentence of a file."""

  place: str  # the file; with the line, where all of the sentence is in one
  words: list[str]  # may be empty strings: files have such
  tags: list[str]  # as many; () where they are not asked for
  lines: Sequence[int] = ()  # of each word; () where all are in one

  def at(self, number: int) -> str:
    """Returns the place of a word, file with line or word number, for error messages."""
    return f'{self.place}, {f"line {self.lines[number]}" if self.lines else f"word {number + 1}"}'


def read(
  path: str, names: Sequence[str], columns: Sequence[int], separator: str
) -> Iterator[Sentence]:
  """Yields the sentences of a file: .tsv, .csv, .json, .jsonl and tfds:NAME:SPLIT are tables, any
  other name is one of columns; perhaps .gz, .xz, .bz2 or .zst. Words and tags stand in the columns
  of these `names` of a table, with `separator` between those of a field, and in `columns` of other
  files, from 1, or from the end with -1; without a second name and column no tags are read."""
  if not records.by_name(path):
    file = records.existing(path)
    if kinds.kind_of(file) not in records.TABLES:
      kinds.check(file, lines=True)
      yield from _columns(file, columns)
      return
  for record in records.read(path, names):
    words, *rest = (_list(record, name, separator) for name in names)
    tags = rest[0] if rest else []
    if not words:
      raise UserError(
        f'{record.place}: expected words in {names[0]!r}, got none: leave the line out'
      )
    if len(tags) != len(rest) * len(words):
      raise UserError(
        f'{record.place}: expected words and as many tags, got {len(words)} in '
        f'{names[0]!r} and {len(tags)} in {names[-1]!r}'
      )
    yield Sentence(record.place, words, tags)


def _list(record: Record, name: str, separator: str) -> list[str]:
  value = record.values[name]
  if isinstance(value, str):
    return value.split(separator)
  if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
    raise UserError(f'{record.place}: expected a list of strings in {name!r}, got {value!r:.60}')
  return value


def _columns(file: pathlib.Path, columns: Sequence[int]) -> Iterator[Sentence]:
  plain = file.with_suffix('') if compressed.suffix(file) else file
  conllu = plain.suffix.lower() == '.conllu'
  words, tags, lines = [], [], []
  for number, line in enumerate(records.lines(file), 1):
    line = '' if line.lstrip().startswith('-DOCSTART-') else line
    if not line.strip():
      if words:
        yield Sentence(str(file), words, tags, lines)
      words, tags, lines = [], [], []
      continue
    if conllu and line.startswith('#'):
      continue
    line = line.rstrip('\r\n')
    fields = line.split('\t') if '\t' in line else _BLANKS.split(line.strip(' '))
    if conllu and not fields[0].isdecimal():
      continue
    word, *tag = _picked(fields, columns, f'{file}, line {number}')
    words.append(word)
    tags += tag
    lines.append(number)
  if words:
    yield Sentence(str(file), words, tags, lines)


def _picked(fields: Sequence[str], columns: Sequence[int], place: str) -> list[str]:
  found = [column - 1 if column > 0 else len(fields) + column for column in columns]
  if not all(0 <= each < len(fields) for each in found) or len(set(found)) < len(found):
    comment = ' (comments are known in .conllu files alone)' if fields[0].startswith('#') else ''
    raise UserError(
      f'{place}: expected words and tags in the columns {tuple(columns)} of '
      f'config.data.task.columns, got {amount(len(fields), "columns")}: {fields!r:.80}{comment}'
    )
  return [fields[each] for each in found]


Scheme = Literal['iob2', 'plain']
OUTSIDE = 'O'
NONE = '_'  # how CoNLL-U spells a field that is empty


def tags(scheme: Scheme, classes: Sequence[str]) -> tuple[str, ...]:
  """Returns all tags, in the order of their ids: of 'iob2' O, and B-X and I-X for each type X of
  `classes`; of 'plain' the classes themselves."""
  if scheme == 'plain':
    return tuple(classes)
  return (OUTSIDE, *(f'{mark}-{kind}' for kind in classes for mark in 'BI'))


def unread(scheme: Scheme) -> str:
  """Returns the tag of a word that no row had room for: O, or '_', which equals no tag."""
  return OUTSIDE if scheme == 'iob2' else NONE


def fault(found: Sequence[str]) -> int | None:
  """Returns the place of the first I-X of IOB2 that follows no X; None: there is none."""
  for place, (before, tag) in enumerate(itertools.pairwise([OUTSIDE, *found])):
    if tag.startswith('I-') and before[2:] != tag[2:]:
      return place
  return None


def entities(found: Sequence[str]) -> list[tuple[str, int, int]]:
  """(type, first word, word behind the last) of each entity.

  ['B-PER', 'I-PER', 'O', 'I-LOC']  ->  [('PER', 0, 2), ('LOC', 3, 4)]
  """
  entities, inside, start = [], '', 0
  for place, tag in enumerate([*found, OUTSIDE]):
    mark, _, kind = tag.partition('-')
    if mark == 'I' and kind == inside:
      continue
    if inside:
      entities.append((inside, start, place))
    inside, start = kind, place
  return entities
