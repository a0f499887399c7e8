"""Questions with some answers to choose from: tables and JSON lines, RACE's objects, DREAM's file.

columns  a row a question; the choices are a list in one column (JSON) or stand in several
race     {"article": .., "questions": [..], "options": [[..], ..], "answers": ["A", ..]}, a line
         an article (Lai et al. 2017), whose own files are one such object each; a choice stands
         where a question has _, as in fairseq/examples/roberta/preprocess_RACE.py
dream    one array of [turns, [{"question": .., "choice": [..], "answer": ..}, ..], id], one for
         each dialogue (Sun et al. 2019)
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from bertjax.errors import UserError
from bertjax.examples.labelled.common import records
from bertjax.examples.labelled.common.records import Record
from bertjax.text import kinds

Form = Literal['columns', 'race', 'dream']
Answer = Literal['index', 'letter', 'text']
LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ'
RACE = ('article', 'questions', 'options', 'answers')


class Question(NamedTuple):
  """A question of a file."""

  place: str  # where it stands, for messages
  context: str  # the text that it is about
  question: str  # may be ''
  choices: Sequence[str]  # the answers to choose from
  right: Any  # which one is right, as the file says it; None where it is not asked for
  # what a choice takes the place of, where the question has it; '': it follows the question
  blank: str = ''


def read(
  path: str, form: Form, context: str, question: str, choices: Sequence[str], label: str = ''
) -> Iterator[Question]:
  """Yields the questions of a file, .jsonl, .json, .csv or .tsv, perhaps compressed. In the form
  'columns' they stand in these columns: question may be '', where there is none, choices is one of
  a list, or several. The others have columns of their own. The right one is read with a label."""
  if form == 'columns':
    found = _columns(path, context, question, choices, label)
  else:
    found = dict(race=_race, dream=_dream)[form](path, bool(label))
  for each in found:
    texts = [each.context, each.question, *each.choices]
    if len(each.choices) < 2 or not all(isinstance(text, str) for text in texts):
      raise UserError(
        f'{each.place}: expected strings, and two choices or more, got {texts!r:.120}'
      )
    yield each


def pairs(found: Sequence[Question]) -> tuple[list[str], list[str]]:
  """Returns the two texts of each choice of each question: its context, and question and choice."""
  each = [(question, choice) for question in found for choice in question.choices]
  return [q.context for q, _ in each], [_asked(q, choice) for q, choice in each]


def _asked(asked: Question, choice: str) -> str:
  if asked.blank and asked.blank in asked.question:
    return asked.question.replace(asked.blank, choice)
  return f'{asked.question} {choice}' if asked.question else choice


def _columns(
  path: str, context: str, question: str, choices: Sequence[str], label: str
) -> Iterator[Question]:
  names = [context, question, *choices, label]
  for record in records.read(path, [name for name in names if name]):
    value = lambda name, record=record: record.values[name]
    found = [value(name) for name in choices]
    if len(found) == 1:
      found = _list(record, choices[0])
    asked, right = (value(name) if name else '' for name in (question, label))
    yield Question(record.place, value(context), asked, found, right)


def _race(path: str, labelled: bool) -> Iterator[Question]:
  names = RACE if labelled else RACE[:-1]
  for record in records.read(path, names):
    questions, options, *rest = (_list(record, name) for name in names[1:])
    answers = rest[0] if rest else [None] * len(questions)
    if not len(questions) == len(options) == len(answers):
      raise UserError(
        f'{record.place}: expected as many options and answers as questions, got {len(questions)} '
        f'questions, {len(options)} options and {len(answers)} answers'
      )
    for number, each in enumerate(zip(questions, options, answers, strict=True), 1):
      place, context = f'{record.place}, question {number}', record.values['article']
      question, choices, right = each
      yield Question(place, context, question, _listed(place, choices), right, blank='_')


def _dream(path: str, labelled: bool) -> Iterator[Question]:
  file = records.existing(path)
  kinds.check(file)
  try:
    dialogues = records.whole(file)
    for number, (turns, questions, _) in enumerate(dialogues, 1):
      context = ' '.join(_listed(f'{file}, dialogue {number}', turns))
      for count, said in enumerate(questions, 1):
        place = f'{file}, dialogue {number}, question {count}'
        right = said['answer'] if labelled else None
        yield Question(place, context, said['question'], _listed(place, said['choice']), right)
  except (ValueError, TypeError, KeyError, RecursionError) as error:
    if isinstance(error, UserError):
      raise
    raise UserError(
      f'{path}: expected an array of [turns, questions, id] as DREAM has them, each question with '
      f'question, choice and answer, got {error!r}'
    ) from error


def _list(record: Record, name: str) -> list[Any]:
  return _listed(f'{record.place}, {name!r}', record.values[name])


def _listed(place: str, value: Any) -> list[Any]:
  if not isinstance(value, list):
    raise UserError(f'{place}: expected a list, got {value!r:.60}')
  return value
