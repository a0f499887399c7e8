"""One of several answers to a question about a text is right.

An example is a row of as many parts as it has choices, which do not see each other:

  [CLS] context [SEP] question choice [SEP]        (Devlin et al. 2019, section 4.4; RACE: Lai et
                                                    al. 2017, as Liu et al. 2019 fine-tune on it)

`config.length` is the length of one part.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from bertjax.data_contracts import Labelled, Task
from bertjax.errors import UserError
from bertjax.examples.labelled.common import questions, texts
from bertjax.examples.labelled.common.questions import LETTERS, Answer, Form, Question
from bertjax.field_types import Count
from bertjax.vocab.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class Options:
  """The fields of `config.data.task`.

  Attributes:
    form: of the files: 'columns', 'race' or 'dream'; see `common/questions.py`.
    context: column of the text.
    question: column of the question, or of how all choices begin; '': there is none.
    choices: columns of the choices, or the one of a list of them.
    label: column of the right choice.
    answer: form of the label: the choice's 'index', from 0, 'letter', from A, or 'text'.
    separators: [SEP] between context and question; RoBERTa has 2.
  """

  form: Form
  context: str
  question: str
  choices: tuple[str, ...]
  label: str
  answer: Answer
  separators: Count = 1


def check(options: Options) -> None:
  """Refuses columns that are not named."""
  if options.form == 'columns' and not (options.context and options.choices and options.label):
    raise UserError(
      'config.data.task: expected the columns of context, choices and label, got '
      f'{options.context!r}, {options.choices!r} and {options.label!r}'
    )


def read(path: str, options: Options) -> Iterator[Question]:
  """Returns the questions of a file; errors as `questions.read`."""
  columns = (options.context, options.question, options.choices, options.label or 'label')
  return questions.read(path, options.form, *columns)


def encode(
  found: Sequence[Question], options: Options, vocabulary: Vocabulary, length: int
) -> Labelled:
  """Builds rows of parts with `right_BG`, 1.0 of the part that is right, else 0.0. Raises
  UserError, naming the line: another number of choices than the first one has, or a right one that
  is none."""
  count = len(found[0].choices)
  right_nG = np.zeros((len(found), count), np.float32)
  for right_G, question in zip(right_nG, found, strict=True):
    if len(question.choices) != count:
      raise UserError(
        f'{question.place}: expected {count} choices, as the first question has, got '
        f'{len(question.choices)}: leave the question out, or train on a file of its like'
      )
    right_G[right(question, options.answer)] = 1
  parts = texts.rows(
    questions.pairs(found), vocabulary, length, options.separators
  )  # of all choices, one after the other
  groups = [parts[start : start + count] for start in range(0, len(parts), count)]
  return Labelled(
    id_n=[np.concatenate([part.id_n for part in group]) for group in groups],
    type_n=[np.concatenate([part.type_n for part in group]) for group in groups],
    label=dict(right=right_nG),
    cut=sum(any(part.cut for part in group) for group in groups),
    part_n=[
      np.repeat(np.arange(1, count + 1, dtype=np.int32), [len(part.id_n) for part in group])
      for group in groups
    ],
  )


def right(question: Question, answer: Answer) -> int:
  """Returns the number of the right choice."""
  choices, said = question.choices, question.right
  names = dict(
    index=[str(number) for number in range(len(choices))],
    letter=list(LETTERS[: len(choices)]),
    text=list(choices),
  )[answer]
  if names.count(str(said)) != 1:
    expected = ', '.join(map(repr, names))
    raise UserError(
      f'{question.place}: expected the {answer} of the right choice, one of {expected:.200}, got '
      f'{said!r:.60}: mend the line or config.data.task.answer'
    )
  return names.index(str(said))


TASK = Task(Options, check, read, lambda options: dict(right=1), encode)
