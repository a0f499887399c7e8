"""A question has its answer in a text: the span from its first token to its last.

  [CLS] question [SEP] a window of the text [SEP]
  a window of the text [SEP] question [SEP] [CLS]    where [CLS] is the last token (XLNet)

A text that is too long for a row is read in windows, each `stride` tokens further (google-research/
bert, run_squad.py:convert_examples_to_features). Where the window does not hold the whole answer,
and where there is none, the span is [CLS]. Tokens and answers meet by characters: a span begins
with the first token that covers one of the answer's and ends with the last, so that it is the
tightest one that holds it, whatever the kind of the vocabulary.
"""

import dataclasses
import functools
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bertjax.data_contracts import Labelled, Task
from bertjax.errors import UserError, warn
from bertjax.examples.labelled.common import squad_json, texts
from bertjax.examples.labelled.common.records import Record
from bertjax.field_types import Count
from bertjax.vocab.vocabulary import Vocabulary

START, END, NONE = 'span_start', 'span_end', 'span_impossible'
LISTED = 5  # questions that a message names
SPACES = np.array([i for i in range(0x3001) if chr(i).isspace()], np.uint32)


@dataclasses.dataclass(frozen=True)
class Options:
  """The fields of `config.data.task`.

  Attributes:
    stride: tokens from the beginning of a window to that of the next (doc_stride).
    question: tokens of a question at most; what is longer is cut.
    no_answer: whether questions may have no answer (SQuAD 2.0), which is learned as the span [CLS].
    separators: [SEP] between question and text; RoBERTa has 2.
  """

  stride: Count = 128
  question: Count = 64
  no_answer: bool = False
  separators: Count = 1


class Context(NamedTuple):
  """A text as tokens; suffix n: one entry per token."""

  text: str
  id_n: np.ndarray  # int32
  # begin_n, end_n: int64, the characters that each covers, without the spaces before it
  begin_n: np.ndarray
  end_n: np.ndarray


class Window(NamedTuple):
  """A row: a question with a part of its text."""

  question: int  # number of the record
  # first, stop: the tokens of the text that it shows
  first: int
  stop: int
  column: int  # of the first of them
  cls: int  # column of [CLS]
  # id_n, type_n: int32, of the row
  id_n: np.ndarray
  type_n: np.ndarray
  cut: int  # tokens of the question that were left out


def read(path: str, options: Options) -> Iterator[Record]:
  """Yields the questions of a file; errors as `squad_json.read`, or a question without an answer
  where `no_answer` is False."""
  for record in squad_json.read(path):
    if not (record.values['answers'] or options.no_answer):
      raise UserError(
        f'{record.place} has no answer: expected one, as in SQuAD 1.1; questions without answers '
        'are learned with config.data.task.no_answer=True (configs/finetune/squad.py:v2)'
      )
    yield record


def classes(options: Options) -> dict[str, int]:
  """Returns span -> 2 scores per token: that the answer begins there, and that it ends there."""
  return dict(span=2)


def contexts(records: Sequence[Record], vocabulary: Vocabulary) -> list[Context]:
  """Returns the text of each record as tokens; of equal texts one."""
  whole = dict.fromkeys(record.values['context'] for record in records)
  id_n, count_t, begin_n, end_n = vocabulary.encode_spans(list(whole))
  stop_t = np.cumsum(count_t)
  found = {}
  for text, first, stop in zip(whole, stop_t - count_t, stop_t, strict=True):
    part = slice(int(first), int(stop))
    begins = _behind_spaces(text, begin_n[part], end_n[part])
    found[text] = Context(text, id_n[part], begins, _with_marks(text, begins, end_n[part]))
  return [found[record.values['context']] for record in records]


def _behind_spaces(text: str, begin_n: np.ndarray, end_n: np.ndarray) -> np.ndarray:
  """Returns the first character of each token that is no space."""
  code_c = np.frombuffer(text.encode('utf-32-le', 'surrogatepass'), np.uint32)
  at_c = np.append(np.where(np.isin(code_c, SPACES), len(text), np.arange(len(text))), len(text))
  next_c = np.minimum.accumulate(at_c[::-1])[::-1]
  return np.minimum(next_c[begin_n], end_n)


def _with_marks(text: str, begin_n: np.ndarray, end_n: np.ndarray) -> np.ndarray:
  """Returns the ends of tokens behind the combining marks that no token covers: a vocabulary that
  strips accents leaves them out, and an answer keeps them."""
  is_mark = lambda place: place < len(text) and unicodedata.category(text[place])[0] == 'M'
  end_n, next_n = end_n.copy(), np.append(begin_n[1:], len(text))
  for n in () if text.isascii() else np.flatnonzero(end_n < next_n):
    while end_n[n] < next_n[n] and is_mark(end_n[n]):
      end_n[n] += 1
  return end_n


def windows(
  records: Sequence[Record],
  found: Sequence[Context],
  options: Options,
  vocabulary: Vocabulary,
  length: int,
  cls_last: bool = False,
) -> list[Window]:
  """Returns the rows of all questions, in their order; an empty text has one, which shows nothing
  of it. With cls_last [CLS] is the last token of a row and the text its first part. Raises
  UserError: rows so short that windows would leave out tokens between them."""
  cls, sep, last = texts.ends(vocabulary)
  around = 2 + options.separators
  least = length - options.question - around
  if least < options.stride:
    raise UserError(
      f'config.length={length} leaves {max(least, 0)} tokens for the text beside a question of '
      f'{options.question} and {around} special ones, fewer than config.data.task.stride='
      f'{options.stride}: expected windows that leave nothing out between them, by longer rows, a '
      'smaller stride or shorter questions (config.data.task.question)'
    )
  asked = vocabulary.encode_batch([record.values['question'] for record in records])
  rows = []
  for number, (context, question_n) in enumerate(zip(found, asked, strict=True)):
    head_n = np.array([cls, *question_n[: options.question], *[sep] * options.separators], np.int32)
    room = length - len(head_n) - 1
    beyond = max(len(context.id_n) - room, 0)
    # The last window is the first that reaches the end.
    for first in range(0, beyond + options.stride, options.stride):
      stop = min(first + room, len(context.id_n))
      shown_n = np.append(context.id_n[first:stop], np.int32(last))
      cut = max(len(question_n) - options.question, 0)
      column, cls_column, id_n, type_n = _row(head_n, shown_n, cls_last)
      rows.append(Window(number, first, stop, column, cls_column, id_n, type_n, cut))
  return rows


def _row(head_n: np.ndarray, text_n: np.ndarray, cls_last: bool) -> tuple[Any, ...]:
  """Returns columns of the text and of [CLS], ids and segments of a row."""
  if not cls_last:
    type_n = np.repeat(np.arange(2, dtype=np.int32), (len(head_n), len(text_n)))
    return len(head_n), 0, np.concatenate([head_n, text_n]), type_n
  type_n = np.repeat(np.arange(3, dtype=np.int32), (len(text_n), len(head_n) - 1, 1))
  return 0, len(type_n) - 1, np.concatenate([text_n, head_n[1:], head_n[:1]]), type_n


def ask(
  questions: Sequence[str],
  texts: Sequence[str],
  task: Mapping[str, Any],
  vocabulary: Vocabulary,
  cls_last: bool,
) -> tuple[list[Window], list[Context]]:
  """Returns questions on texts that nobody has answered, as `windows`, and the texts; `task` has
  the fields of `Options`, and `length`."""
  asked = [
    Record(f'question {n}', dict(question=question, context=text, answers=()))
    for n, (question, text) in enumerate(zip(questions, texts, strict=True), 1)
  ]
  options = Options(**{field.name: task[field.name] for field in dataclasses.fields(Options)})
  found = contexts(asked, vocabulary)
  return windows(asked, found, options, vocabulary, task['length'], cls_last), found


def answer_tokens(record: Record, context: Context) -> tuple[int, int] | None:
  """First and last token of the first answer; None where the text has something else there."""
  text, begin = record.values['answers'][0]
  end = begin + len(text)
  if begin < 0 or not text.strip() or context.text[begin:end] != text:
    return None
  first = int(np.searchsorted(context.end_n, begin, side='right'))
  last = int(np.searchsorted(context.begin_n, end, side='left')) - 1
  return (first, last) if first <= last else None


def encode(
  records: Sequence[Record],
  options: Options,
  vocabulary: Vocabulary,
  length: int,
  cls_last: bool = False,
) -> Labelled:
  """Builds rows with `span_start_BG` and `span_end_BG`, int32 columns, and `span_impossible_BG`, 1
  of questions without an answer. A question whose answer is not where the file says is kept out,
  which is logged; UserError where none is left."""
  found = contexts(records, vocabulary)
  spans = [
    answer_tokens(record, context) if record.values['answers'] else (-1, -1)
    for record, context in zip(records, found, strict=True)
  ]
  kept = [number for number, span in enumerate(spans) if span]
  _say_left_out([record for record, span in zip(records, spans, strict=True) if not span], kept)
  asked, texts = [records[i] for i in kept], [found[i] for i in kept]
  rows = windows(asked, texts, options, vocabulary, length, cls_last)
  label = [_columns(row, *(spans[kept[row.question]] or (-1, -1))) for row in rows]
  label_n2 = np.array(label, np.int32)
  none_n = np.array([not asked[row.question].values['answers'] for row in rows], np.int32)
  return labelled(rows, dict(zip((START, END), label_n2.T, strict=True)) | {NONE: none_n})


def labelled(rows: Sequence[Window], label: dict[str, np.ndarray]) -> Labelled:
  """Windows as the rows of a run."""
  cut = sum(row.cut > 0 for row in rows)
  return Labelled([row.id_n for row in rows], [row.type_n for row in rows], label, cut)


def _columns(row: Window, first: int, last: int) -> tuple[int, int]:
  """Returns the first and last column of a span in a row; [CLS] if part of it is missing."""
  if first < row.first or last >= row.stop:
    return row.cls, row.cls
  return row.column + first - row.first, row.column + last - row.first


def _say_left_out(out: Sequence[Record], kept: Sequence[int]) -> None:
  if not out:
    return
  named = ', '.join(record.place for record in out[:LISTED])
  said = (
    f'{len(out):,} of {len(out) + len(kept):,} questions have an answer that is not in their text '
    f'at the place that is said: {named}{", .." if len(out) > LISTED else ""}'
  )
  if not kept:
    raise UserError(f'{said}: expected answer_start in characters, from 0')
  warn('%s: they are kept out', said)


TASK = Task(
  Options, lambda options: None, read, classes, encode, functools.partial(encode, cls_last=True),
  targets=('answers',),
)  # fmt: skip
