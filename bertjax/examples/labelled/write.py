"""A text is answered by another one, which a model with a decoder learns to write (T5).

  read='summarize: {article}', write='summary'      the file has the columns article and summary

What is read ends with [SEP], and so does what is written, which the decoder reads one token late,
behind the id 0 (Raffel et al. 2020; t5x, models.py). Framed, both are [CLS] text [SEP], and the
decoder begins with [SEP] (Lewis et al. 2020). A text that is too long is cut, its end stays.
"""

import dataclasses
import string
from collections.abc import Iterator, Sequence

import numpy as np

from bertjax.data_contracts import Labelled, Task
from bertjax.errors import UserError
from bertjax.examples.labelled.common import records, texts
from bertjax.examples.labelled.common.records import Record
from bertjax.examples.labelled.common.rows import UNIT
from bertjax.field_types import Count
from bertjax.text.sentences import PairFrame, pair_frame
from bertjax.vocab.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class Options:
  """The fields of `config.data.task`.

  Attributes:
    read: text that is read: columns in braces, and what stands around them, such as a prefix that
      names the task.
    write: column of the text that is written.
    target_length: U, tokens of a written text at most, special ones included.
    framed: whether [CLS] stands before both texts, as BART has them; T5 has none.
    header: names of the columns of a table whose first line is none.
  """

  read: str
  write: str
  target_length: Count
  framed: bool = False
  header: tuple[str, ...] = ()


def columns(read: str) -> tuple[str, ...]:
  """Returns the columns that a form of texts names. Raises UserError if it has none, or braces that
  do not close."""
  try:
    named = [(name, how) for _, name, *how in string.Formatter().parse(read) if name is not None]
  except ValueError as error:
    raise UserError(f'config.data.task.read={read!r}: {error}') from error
  if not named or any(not name or how != ['', None] for name, how in named):
    raise UserError(
      'config.data.task.read: expected columns in braces, as in "translate English to German: '
      f'{{text}}", got {read!r}; a brace of the text itself is written twice'
    )
  return tuple(dict.fromkeys(name for name, _ in named))


def check(options: Options) -> None:
  """Refuses texts without a column."""
  columns(options.read)
  if not options.write:
    raise UserError('config.data.task.write: expected the column of what is written, got none')


def read(path: str, options: Options) -> Iterator[Record]:
  """Returns the records of a table; errors as `records.read`."""
  return records.read(path, (*columns(options.read), options.write), options.header)


def sources(found: Sequence[Record], form: str) -> list[str]:
  """Returns the text that is read of each record, of the form of `Options.read`. Raises UserError:
  a column that is no string."""
  parts = list(string.Formatter().parse(form))
  said = lambda r, name: '' if name is None else records.string(r, name)
  return [''.join(text + said(record, name) for text, name, *_ in parts) for record in found]


def encode(
  found: Sequence[Record], options: Options, vocabulary: Vocabulary, length: int
) -> Labelled:
  """Builds rows with a second text. Raises UserError, naming the line: nothing to be written, or
  more than target_length tokens; a vocabulary without [SEP]."""
  texts.special(vocabulary, ('cls', 'sep') if options.framed else ('sep',))
  frame = pair_frame(options.framed, vocabulary.special)
  room = length - len(frame.before) - 1
  if room < 1:
    raise UserError(f'config.length={length} leaves no room for a text and its end: expected more')
  source_n = vocabulary.encode_batch(sources(found, options.read))
  target_n = _targets(found, options, vocabulary, frame)
  id_n = [np.array([*frame.before, *ids[:room], *frame.after], np.int32) for ids in source_n]
  return Labelled(
    id_n=id_n,
    type_n=[np.zeros(len(ids), np.int32) for ids in id_n],
    label={},
    cut=sum(len(ids) > room for ids in source_n),
    truth=[records.string(record, options.write) for record in found],
    second=dict(
      out_token=[np.append(frame.begin, ids[:-1]).astype(np.int32) for ids in target_n],
      target=target_n,
      weight=[np.ones(len(ids), np.float32) for ids in target_n],
    ),
    columns=-(-options.target_length // UNIT) * UNIT,
  )


def _targets(
  found: Sequence[Record], options: Options, vocabulary: Vocabulary, frame: PairFrame
) -> list[np.ndarray]:
  said = [records.string(record, options.write) for record in found]
  text_n = vocabulary.encode_batch(said)
  target_n = [np.array([*frame.before, *ids, *frame.after], np.int32) for ids in text_n]
  for record, text, ids in zip(found, said, target_n, strict=True):
    if len(ids) <= len(frame.before) + 1:
      raise UserError(
        f'{record.place}: expected a text in {options.write!r}, got {text!r}, which has no token: '
        'leave the line out, or spell what is to be written'
      )
    if len(ids) > options.target_length:
      raise UserError(
        f'{record.place}: {options.write!r} has {len(ids)} tokens with its special ones, expected '
        f'config.data.task.target_length={options.target_length} at most: raise that, or shorten '
        'the text'
      )
  return target_n


TASK = Task(Options, check, read, lambda options: {}, encode, targets=('written', 'framed'))
