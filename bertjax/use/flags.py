"""The flags that `predict`, `embed` and `generate` share, and the texts that they name."""

import codecs
import itertools
import pathlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

from absl import flags

from bertjax.errors import UserError, require_file
from bertjax.examples.labelled.common import questions, records, squad_json, tagged
from bertjax.text import compressed
from bertjax.text.left_out import MAX_DOCUMENT, strict

WORKDIR = flags.DEFINE_string(
  'workdir',
  None,
  'The run, one of its checkpoints, a directory of transformers, or FORMAT:PATH (hf:, tf1:, ..).',
  required=True,
)
STEP = flags.DEFINE_string('step', None, "Checkpoint step, or 'best'. Default: the newest.")
INPUT = flags.DEFINE_string(
  'input',
  None,
  'File of texts, one a line, plain or .gz, .xz, .bz2, .zst; - reads standard input. Of a '
  'fine-tuned run a file as those of its task.',
)
CUT = flags.DEFINE_bool('cut', False, 'Cut texts that are too long for the model.')
LANGUAGE = flags.DEFINE_string(
  'language', None, 'Language of the texts, by name or number, if the model has several.'
)
MESH = flags.DEFINE_string(
  'mesh', None, 'Devices on data,fsdp,tensor, as in 1,4,2; all share the rows if not given.'
)
TASK = flags.DEFINE_string('task', '', 'Task whose head to use, if the run has several.')


class Part(NamedTuple):
  """Some texts that follow each other."""

  texts: list[str]  # without their line ends
  first: int  # number of the first, from 1
  done: float | None  # how much of the input has been read, 0 to 1; None where its end is not known
  seconds: Sequence[str] = ()  # of pairs their second texts; or the questions on the texts
  words: Sequence[list[str]] = ()  # of sentences that are words already
  asked: Sequence[questions.Question] = ()  # questions with choices; the texts are their contexts
  ids: Sequence[str] = ()  # of questions on texts
  columns: Sequence[Mapping[str, Any]] = ()  # of each line of a table, those that its task names


def load(beside: str = '') -> Any:
  """Returns the model that the flags name, or that of another run by the other flags."""
  from bertjax.checkpoint import reading  # jax: after the flags, so that --help is quick
  from bertjax.use.model import Model

  step, language = reading.as_step(STEP.value), LANGUAGE.value
  if language is not None and language.isdecimal():
    language = int(language)
  return Model.load(beside or WORKDIR.value, step, MESH.value, language, TASK.value)


def parts(size: int) -> Iterator[Part]:
  """Returns the texts of --input, so many at a time; an empty line is an empty text, which is said.
  Raises UserError: at the call, no such file or no line in it; later, a line that is no text."""
  found = _read(size)
  first = next(found, None)
  if first is None:
    raise UserError(f'--input={INPUT.value} has no line: expected one text a line')
  return itertools.chain([first], found)


# Each of these takes `config.data.task`, which says where things stand in the file, and the size of
# a part. They raise UserError where there is no such file, or it is not as the task says.


def table_parts(task: Mapping[str, Any], size: int) -> Iterator[Part]:
  """Yields the texts or pairs of a table, so many at a time."""
  found = records.read(_file(), task['text'], task['header'])
  for first, some in _batches(found, size):
    texts = [[records.string(record, name) for record in some] for name in task['text']]
    names = (*task['text'], task['label'])
    columns = [{k: r.values[k] for k in names if k in r.values} for r in some]
    yield Part(texts[0], first, None, texts[1] if len(texts) > 1 else (), columns=columns)


def read_parts(task: Mapping[str, Any], size: int) -> Iterator[Part]:
  """Yields what is read of each line of a table, of whose columns a model learned to write, so many
  at a time; it needs nothing that was written."""
  from bertjax.examples.labelled import write  # with its libraries, which --help does not need

  found = records.read(_file(), write.columns(task['read']), task['header'])
  for first, some in _batches(found, size):
    yield Part(write.sources(some, task['read']), first, None)


def word_parts(task: Mapping[str, Any], size: int) -> Iterator[Part]:
  """Yields the sentences of a file of words, so many at a time; it needs no tags."""
  found = tagged.read(_file(), (task['words'],), task['columns'][:1], task['separator'])
  for first, some in _batches(found, size):
    words = [sentence.words for sentence in some]
    yield Part([' '.join(each) for each in words], first, None, words=words)


def question_parts(task: Mapping[str, Any], size: int) -> Iterator[Part]:
  """Yields the questions of a file, so many at a time; it needs no right answers."""
  columns = (task['context'], task['question'], task['choices'])
  for first, some in _batches(questions.read(_file(), task['form'], *columns), size):
    yield Part([each.context for each in some], first, None, asked=some)


def span_parts(task: Mapping[str, Any], size: int) -> Iterator[Part]:
  """Yields the questions of a file like SQuAD's, so many at a time; it needs no answers."""
  del task
  for first, some in _batches(squad_json.read(_file(), answers=False), size):
    column = lambda key, some=some: [record.values[key] for record in some]
    yield Part(column('context'), first, None, column('question'), ids=column('id'))


def _file() -> str:
  """--input, where it is no plain text: its ending says what it is. Raises UserError: standard
  input, which has none."""
  name = INPUT.value or '-'
  if name == '-':
    raise UserError(
      '--input: files of a task say by their ending what they are (.tsv, .csv, .jsonl, ..), and '
      'standard input has none: expected the name of a file'
    )
  return name


def _batches(found: Iterable[Any], size: int) -> Iterator[tuple[int, list[Any]]]:
  """So many of them at a time, with the number of the first, from 1."""
  numbered = enumerate(found, 1)
  while some := list(itertools.islice(numbered, size)):
    yield some[0][0], [each for _, each in some]


def _read(size: int) -> Iterator[Part]:
  name = INPUT.value or '-'
  if name == '-':
    if sys.stdin is None:
      raise UserError('--input=-: standard input is closed: expected one text a line there')
    yield from _parts(sys.stdin.buffer, sys.stdin.buffer, name, 0, size)
    return
  path = pathlib.Path(name)
  require_file(path, 'texts, one a line (--input)', once=True)
  with open(path, 'rb') as raw:
    lines = compressed.lines(path, raw, MAX_DOCUMENT)
    yield from _parts(lines, raw, name, path.stat().st_size, size)


def _parts(
  lines: Iterable[bytes], raw: IO[bytes], name: str, whole: int, size: int
) -> Iterator[Part]:
  empty = False
  for first, chunk in _batches(strict(lines, name), size):
    if first == 1:
      chunk[0] = chunk[0].removeprefix(codecs.BOM_UTF8)
    texts = [line.removesuffix(b'\n').removesuffix(b'\r').decode('utf-8') for line in chunk]
    if not empty and '' in texts:
      number, empty = first + texts.index(''), True
      print(f'line {number} is empty: such lines are empty texts', file=sys.stderr)
    yield Part(texts, first, raw.tell() / whole if whole else None)
