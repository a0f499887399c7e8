"""A text or a pair of texts has a class, any number of classes, or a number."""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np

from bertjax.data_contracts import INFER, Labelled, Task
from bertjax.errors import UserError
from bertjax.examples.labelled.common import records, texts
from bertjax.examples.labelled.common.records import Record
from bertjax.field_types import Count
from bertjax.vocab.vocabulary import Vocabulary

FLAGS = {'0': False, '0.0': False, 'false': False, '1': True, '1.0': True, 'true': True}


@dataclasses.dataclass(frozen=True)
class Options:
  """The fields of `config.data.task`.

  Attributes:
    text: columns of the text, or of the two texts of a pair.
    label: column of the class or number; with `several` '' where each class has a column, of 0 and
      1, which has its name.
    classes: spellings of the classes, in the order of their ids; (): a number is predicted;
      'infer': those of `config.data.train`, sorted; of a column for each all columns but the texts.
    header: names of the columns of a table whose first line is none.
    separators: [SEP] between the texts of a pair; RoBERTa has 2.
    unlabelled: no label is read: a student can learn from a text what its teacher says.
    soft_label: column of what a teacher says (`bertjax.predict --soft_labels`): the probability of
      each class, or a number; '': none.
    several: what stands between the classes of an example, which has any number of them; JSON lines
      may list them. '': an example has one class.
  """

  text: tuple[str, ...]
  label: str
  classes: tuple[str, ...]
  header: tuple[str, ...] = ()
  separators: Count = 1
  unlabelled: bool = False
  soft_label: str = ''
  several: str = ''


def check(options: Options, at: str = 'config.data.task.') -> None:
  """Refuses no text, more than two, or fewer than two different classes; `at` begins the names of
  keys."""
  if len(options.text) not in (1, 2):
    raise UserError(f'{at}text: expected one column or two, got {options.text!r}')
  if not (options.label or options.several):
    raise UserError(
      f"{at}label: expected the name of a column, got ''; with {at}several each class has a column "
      'of its own'
    )
  if options.classes and len(set(options.classes)) < max(2, len(options.classes)):
    raise UserError(
      f'{at}classes: expected two different classes or more, or () where a number is '
      f'predicted, got {options.classes!r}'
    )
  if options.several and (options.soft_label or not options.classes):
    raise UserError(
      f'{at}several={options.several!r}: expected classes, any number of which an example has, '
      f'without soft labels; got classes={options.classes!r}, soft_label={options.soft_label!r}'
    )


def read(path: str, options: Options) -> Iterator[Record]:
  """Yields the records of a table; errors as `records.read`."""
  inferred = options.classes if options.classes != INFER else ()
  needed = (options.label,) if options.label or not options.several else inferred
  needed = () if options.unlabelled else needed
  try:
    yield from records.read(path, (*options.text, *needed), options.header)
  except UserError as error:
    if not options.several or not options.label:
      raise
    raise UserError(
      f"{error}. Where each class has a column of 0 and 1, set config.data.task.label=''"
    ) from error


def classes(options: Options) -> dict[str, int]:
  """Returns label -> number of classes; 1: the label is a number."""
  return dict(label=len(options.classes) or 1)


def encode(
  found: Sequence[Record], options: Options, vocabulary: Vocabulary, length: int
) -> Labelled:
  """Builds rows with `label_BG`, int32 ids of classes or float32 numbers, or with `several`
  `label_BGC`, float32, 1 of each class that an example has; and `soft_label_BGC`, log-probabilities
  of the classes, or a number, where the first record has it. Raises UserError, naming the line: a
  label or soft label that is none of these classes, no number or not there."""
  said = [[records.string(r, name) for r in found] for name in options.text]
  rows = texts.rows(said, vocabulary, length, options.separators)
  return Labelled(
    id_n=[row.id_n for row in rows],
    type_n=[row.type_n for row in rows],
    label=labels(found, options) | _soft_labels(found, options),
    cut=sum(row.cut > 0 for row in rows),
  )


def labels(found: Sequence[Record], options: Options) -> dict[str, np.ndarray]:
  """Returns `label` -> int32 ids of classes or float32 numbers, with `several` float32 [n, 1, C];
  nothing where none is read."""
  if options.unlabelled:
    return {}
  if options.several:
    return dict(label=np.array([[_several(r, options)] for r in found], np.float32))
  if not options.classes:
    return dict(label=np.array([_number(r, options.label) for r in found], np.float32))
  label_n = [_class(r, options, str(r.values[options.label])) for r in found]
  return dict(label=np.array(label_n, np.int32))


def _class(record: Record, options: Options, said: str) -> int:
  if said not in options.classes:
    raise UserError(
      f'{record.place}: expected one of {", ".join(map(repr, options.classes))} in '
      f'{options.label!r}, got {said!r}: mend the line or the classes of the config'
    )
  return options.classes.index(said)


def _several(record: Record, options: Options) -> np.ndarray:
  """Returns 1 for each class of an example, 0 for the others."""
  label_C = np.zeros(len(options.classes), np.float32)
  label_C[[_class(record, options, name) for name in named(record, options)]] = 1
  return label_C


def named(record: Record, options: Options) -> list[str]:
  """Returns the classes of an example, as they are spelled; where they are to be inferred from
  columns, all that the record has beside texts."""
  if not options.label and options.classes == INFER:
    return [name for name in record.values if name not in options.text]
  if not options.label:
    return [name for name in options.classes if _flag(record, name)]
  said = record.values[options.label]
  if not options.several:
    return [str(said)]
  parts = said if isinstance(said, list) else str(said).split(options.several)
  return [name for part in parts if (name := str(part).strip())]


def _flag(record: Record, name: str) -> bool:
  said = str(record.values[name]).strip().lower()
  if said not in FLAGS:
    raise UserError(
      f'{record.place}: expected 0 or 1 in {name!r}, got {record.values[name]!r}: mend the line, '
      'or name the columns that are classes in config.data.task.classes'
    )
  return FLAGS[said]


def _number(record: Record, name: str) -> float:
  said = str(record.values[name])
  try:
    number = float(said)
  except ValueError:
    number = math.nan
  if not math.isfinite(number):
    raise UserError(
      f'{record.place}: expected a number in {name!r}, got {said!r}; classes are named, as in '
      "config.data.task.classes=('no','yes')"
    )
  return number


def _soft_labels(found: Sequence[Record], options: Options) -> dict[str, np.ndarray]:
  """Returns `soft_label` -> float32 [n, 1, C], C being 1 of a number, if the first record has
  one."""
  if not options.soft_label or options.soft_label not in found[0].values:
    return {}
  soft_nC = np.array([_soft_label(r, options) for r in found], np.float32)
  return dict(soft_label=soft_nC[:, None])


def _soft_label(record: Record, options: Options) -> list[float]:
  if options.soft_label not in record.values:
    raise UserError(
      f'{record.place}: expected {options.soft_label!r}, which the lines before it have'
    )
  said = record.values[options.soft_label]
  if not options.classes:
    return [_number(record, options.soft_label)]
  known = isinstance(said, dict) and said.keys() == set(options.classes)
  p_C = np.array([said[name] for name in options.classes] if known else [], np.float64)
  if not known or not (p_C >= 0).all() or abs(p_C.sum() - 1) > 1e-3:
    raise UserError(
      f'{record.place}: expected in {options.soft_label!r} the probability of each of '
      f'{", ".join(map(repr, options.classes))}, got {said!r}: write the file with a teacher of '
      'this task (bertjax.predict --soft_labels)'
    )
  with np.errstate(divide='ignore'):  # a class may have none
    return np.log(p_C).tolist()


TASK = Task(Options, check, read, classes, encode, named=named)
