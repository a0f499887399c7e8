"""Each word of a sentence has a tag: entities in IOB2, parts of speech.

The first piece of a word carries its tag; other pieces, special tokens and padding carry none.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from bertjax.data_contracts import Labelled, Task
from bertjax.errors import UserError
from bertjax.examples.labelled.common import tagged, texts
from bertjax.examples.labelled.common.tagged import Scheme, Sentence
from bertjax.vocab.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class Options:
  """The fields of `config.data.task`.

  Attributes:
    words: column of the words in .tsv, .csv and .jsonl; a list in the last.
    tags: column of as many tags.
    separator: between words, and between tags, in a field of a table.
    columns: of the word and of the tag in all other files, which have a line a word, from 1, or
      from the end with -1.
    scheme: 'iob2': B-X begins an entity of type X, I-X goes on with it, O is outside; 'plain'.
    classes: types of the entities, or with 'plain' the tags; 'infer': those of
      `config.data.train`, sorted.
  """

  words: str = 'tokens'
  tags: str = 'tags'
  separator: str = ' '
  columns: tuple[int, int] = (1, -1)
  scheme: Scheme = 'iob2'
  classes: tuple[str, ...] = ()


def check(options: Options) -> None:
  """Refuses no class, one named twice, tags in place of types, no separator, or no columns."""
  key, classes = 'config.data.task', options.classes
  least = 1 if options.scheme == 'iob2' else 2
  if len(set(classes)) < max(least, len(classes)):
    raise UserError(f'{key}.classes: expected {least} or more, all different, got {classes!r}')
  marked = [name for name in classes if name == tagged.OUTSIDE or name[:2] in ('B-', 'I-')]
  if marked and options.scheme == 'iob2':
    raise UserError(
      f"{key}.classes: expected types of entities, as in ('PER', 'LOC'), whose tags O, B-PER, .. "
      f'follow from them, got {", ".join(marked)}'
    )
  if not options.separator or 0 in options.columns:
    raise UserError(
      f'{key}: expected a separator, and columns from 1 or, from the end, from -1, got '
      f'{options.separator!r} and {options.columns}'
    )


def read(path: str, options: Options) -> Iterator[Sentence]:
  """Returns the sentences of a file; errors as `tagged.read`."""
  names = options.words, options.tags
  return tagged.read(path, names, options.columns, options.separator)


def classes(options: Options) -> dict[str, int]:
  """Returns tag -> number of tags."""
  return dict(tag=len(tagged.tags(options.scheme, options.classes)))


def encode(
  found: Sequence[Sentence], options: Options, vocabulary: Vocabulary, length: int
) -> Labelled:
  """Builds rows with `tag_BT` and `tag_weight_BT`, 1.0 where a word begins; `truth` is int32 ids of
  the tags of all words, those without room too. Raises UserError, naming the line: a tag that there
  is none of, or that does not go on with an entity."""
  ids = {tag: i for i, tag in enumerate(tagged.tags(options.scheme, options.classes))}
  truth = [_ids(sentence, ids, options.scheme) for sentence in found]
  rows = texts.word_rows([sentence.words for sentence in found], vocabulary, length)
  tag, weight = [], []
  for row, true_n in zip(rows, truth, strict=True):
    tag_T, weight_T = np.zeros(len(row.id_n), np.int32), np.zeros(len(row.id_n), np.float32)
    tag_T[row.first_n], weight_T[row.first_n] = true_n[: len(row.first_n)], 1
    tag.append(tag_T)
    weight.append(weight_T)
  return Labelled(
    id_n=[row.id_n for row in rows],
    type_n=[np.zeros(len(row.id_n), np.int32) for row in rows],
    label={},
    cut=sum(row.tokens > len(row.id_n) for row in rows),
    token_label=dict(tag=tag, tag_weight=weight),
    truth=truth,
  )


def _ids(sentence: Sentence, ids: dict[str, int], scheme: Scheme) -> np.ndarray:
  unknown = next((n for n, tag in enumerate(sentence.tags) if tag not in ids), None)
  if unknown is not None:
    raise UserError(
      f'{sentence.at(unknown)}: expected one of the tags {", ".join(ids)}, got '
      f'{sentence.tags[unknown]!r}: mend the line or config.data.task.classes'
    )
  wrong = tagged.fault(sentence.tags) if scheme == 'iob2' else None
  if wrong is not None:
    tag = sentence.tags[wrong]
    raise UserError(
      f'{sentence.at(wrong)}: {tag} goes on with an entity that nothing began: expected IOB2, '
      f'where each entity begins with B-, here B-{tag[2:]}. Convert the file, or set '
      "config.data.task.scheme='plain' and name all tags in config.data.task.classes"
    )
  return np.array([ids[tag] for tag in sentence.tags], np.int32)


def named(sentence: Sentence, options: Options) -> list[str]:
  """Returns the types of the entities of a sentence, or with 'plain' its tags."""
  if options.scheme == 'plain':
    return sentence.tags
  return [tag[2:] for tag in sentence.tags if tag[:2] in ('B-', 'I-')]


TASK = Task(Options, check, read, classes, encode, named=named, targets=('tags',))
