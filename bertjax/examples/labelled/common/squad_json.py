"""Questions on texts, as SQuAD's files have them: one JSON object, compressed or not.

  {"data": [{"title": .., "paragraphs": [
    {"context": "the text", "qas": [
      {"id": "q1", "question": "..", "answers": [{"text": "text", "answer_start": 4}],
       "is_impossible": false}]}]}]}

SQuAD 1.1 has no `is_impossible` and an answer for each question (Rajpurkar et al. 2016), 2.0 has
questions without any (Rajpurkar et al. 2018); XQuAD and CMRC 2018 are in the form of 1.1.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from bertjax.errors import UserError
from bertjax.examples.labelled.common import records
from bertjax.examples.labelled.common.records import Record
from bertjax.text import kinds


class Answer(NamedTuple):
  """An answer that a person gave."""

  text: str
  begin: int  # its first character in the context, by code points


def read(path: str, answers: bool = True) -> Iterator[Record]:
  """Yields a record for each question of a .json file, perhaps compressed, or of tfds:NAME:SPLIT,
  in their order.

  Its values are `id`, `question` and `context`, strings, and `answers`, a tuple of `Answer`, empty
  where the question has none or they are not read. Questions on one context share one string.
  """
  seen = set()
  for context, place, question in _split(path) if records.by_name(path) else _file(path):
    record = _record(context, place, question, str(path), answers)
    if record.values['id'] in seen:
      raise UserError(f'{record.place} stands there twice: expected an id for each question')
    seen.add(record.values['id'])
    yield record


def _split(path: str) -> Iterator[tuple[str, str, Any]]:
  for record in records.read(path, ('id', 'question', 'context', 'answers')):
    yield record.values['context'], record.place, record.values


def _file(path: str) -> Iterator[tuple[str, str, Any]]:
  file = records.existing(path)
  if kinds.check(file) != kinds.JSON:
    raise UserError(f'{path}: expected questions in the form of SQuAD, .json')
  try:
    whole = records.whole(file)
  except (ValueError, RecursionError) as error:
    raise UserError(
      f'{path}: expected one JSON object in the form of SQuAD, got {error}'
    ) from error
  for article, among in _list(whole, 'data', str(path)):
    for paragraph, where in _list(article, 'paragraphs', among):
      questions = _list(paragraph, 'qas', where)
      context = _string(paragraph, 'context', where)
      for question, place in questions:
        yield context, place, question


def _record(context: str, place: str, said: Any, path: str, answers: bool) -> Record:
  name = str(_item(said, 'id', (str, int), place))
  place = f'{path}, question {name}'
  known = answers and not said.get('is_impossible', False)
  given = _list(said, 'answers', place) if known else []
  found = tuple(
    Answer(_string(each, 'text', where), _item(each, 'answer_start', (int,), where))
    for each, where in given
  )
  question = _string(said, 'question', place)
  return Record(place, dict(id=name, question=question, context=context, answers=found))


def _list(holder: Any, key: str, place: str) -> list[tuple[Any, str]]:
  """Returns the items of a list, each with where it stands."""
  found = _item(holder, key, (list,), place)
  return [(each, f'{place}, {key}[{number}]') for number, each in enumerate(found)]


def _string(holder: Any, key: str, place: str) -> str:
  return _item(holder, key, (str,), place)


def _item(holder: Any, key: str, types: tuple[type, ...], place: str) -> Any:
  """Returns the value of a key; raises UserError if it is missing or of none of these types."""
  expected = f'{place}: expected {" or ".join(t.__name__ for t in types)} as {key!r}'
  if not isinstance(holder, Mapping) or key not in holder:
    raise UserError(f'{expected}, got {str(holder)[:60]!r}, which is not in the form of SQuAD')
  value = holder[key]
  if not isinstance(value, types) or isinstance(value, bool):
    raise UserError(f'{expected}, got {str(value)[:60]!r}')
  return value
