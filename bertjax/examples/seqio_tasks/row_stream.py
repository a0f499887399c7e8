"""Rows that are streamed from a seqio Task or Mixture: `data_contracts.TrainingRows`.

`config.data.reader='seqio'` reads so, without a store. A stream cannot be entered anywhere: a
resumed run reads past all rows that it has seen. Nothing is held out, unless the Task has a split
'validation'.
"""

import atexit
import dataclasses
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bertjax.errors import UserError, warn
from bertjax.examples.seqio_tasks.windows import without_text
from bertjax.store.reader import Store
from bertjax.types import sizes
from bertjax.vocab import kept
from bertjax.vocab.vocabulary import read_vocabulary

Batch = dict[str, np.ndarray]


class StreamedRows:
  """Rows by number, asked for in order, give or take the latest ones.

  One thread at a time may ask.
  """

  ordered = False  # rows have nothing to do with each other

  def __init__(self, name: str, open_at: Callable[[int], Iterator[Batch]], keep: int):
    """Opens nothing yet. `open_at` returns, from a row on and without end, batches of any size;
    `keep` rows are remembered behind the latest one asked for, so that a batch can be asked for
    again and hosts can ask for their shares of it."""
    self._name, self._open_at, self._keep = name, open_at, keep
    self._batches: Iterator[Batch] = iter(())
    self._rows: Batch = {}
    self._start = self._end = 1 << 62  # of the rows in memory; what is asked for first lies before

  @property
  def stats(self) -> dict[str, float]:
    """Real tokens per row and their share, of the rows in memory; the first ones if there are none
    yet."""
    if not self._rows:
      self.batch(np.zeros(1, np.int64), shuffle=True)
    fill = float(np.mean(self._rows['example_BT'] > 0))
    return dict(tokens_per_row=fill * self._rows['example_BT'].shape[1], fill=fill)

  def template(self) -> Batch:
    """Returns a row, for its shapes and dtypes."""
    row = self.batch(np.zeros(1, np.int64), shuffle=True)
    return {name: value for name, value in row.items() if name != 'dropped_B'}

  def batch(self, row_n: np.ndarray, shuffle: bool) -> Batch:
    """Returns consecutive rows in the one order that the stream has. Raises UserError: the stream
    ends, or its source is wrong."""
    first, stop = int(row_n[0]), int(row_n[-1]) + 1
    anew = first < self._start
    past = first if anew else first - self._end
    if past > self._keep:
      warn(
        '%s: the run goes on behind %d rows, which are read again first, as long as it '
        'took before; a store (config.data.reader=store) goes on at once', self._name, past,
      )  # fmt: skip
    if anew:
      self._batches, self._rows, self._start, self._end = self._open_at(first), {}, first, first
    while self._end < stop:
      self._read(first)
    return {name: value[row_n - self._start] for name, value in self._rows.items()}

  def close(self) -> None:
    """Lets go of the source."""
    self._batches = iter(())

  def _read(self, first: int) -> None:
    """Appends the next rows; forgets those that are before `first` and more than `keep` back."""
    batch = next(self._batches, None)
    if batch is None:
      raise UserError(f'{self._name} ends after {self._end} rows: expected a split that repeats')
    old = max(min(first, self._end - self._keep) - self._start, 0)
    self._start, self._end = self._start + old, self._end + len(batch['example_BT'])
    join = lambda name, value: np.concatenate([self._rows[name][old:], value])
    self._rows = {k: join(k, v) for k, v in batch.items()} if self._rows else batch


@dataclasses.dataclass(frozen=True)
class Fixed:
  """Rows in memory, to evaluate on.

  Attributes:
    store: knows the vocabulary.
    row: the rows as one batch.
  """

  store: Store
  row: Batch
  ordered = False  # each row stands for itself

  @property
  def rows(self) -> int:
    """Number of rows."""
    return len(self.row['example_BT'])

  @property
  def stats(self) -> dict[str, float]:
    """Number of rows, under the key rows."""
    return dict(rows=self.rows)

  def batch(self, row_n: np.ndarray, shuffle: bool, place_n: np.ndarray | None = None) -> Batch:
    """Returns rows in the order asked for; they are not shuffled. What is spread over rows was
    drawn when they were made, by their numbers: an evaluation takes the first ones."""
    taken_n = row_n if place_n is None else place_n
    return {name: value[taken_n] for name, value in self.row.items()}


def ensure_vocabulary(data: Any, workdir: str, given: str) -> str:
  """Copies the vocabulary of the examples to WORKDIR/vocab; returns WORKDIR. `given` is the path of
  the one that the config names, or ''. Raises UserError: there is none, or the Task's examples were
  made with another one."""
  own = _example_tasks().vocabulary_path(data)
  if not (given or own):
    raise UserError(
      f'{data.mixture or data.input} does not say which vocabulary its ids are of: set '
      'config.data.vocab to a file or directory'
    )
  if own and given and not read_vocabulary(own).reads_as(read_vocabulary(given, data.lowercase)):
    raise UserError(
      f'config.data.vocab={given}, but the examples of {data.mixture} are made with {own}: leave '
      'config.data.vocab empty'
    )
  kept.bring(own or given, None if own else data.lowercase, pathlib.Path(workdir, 'vocab'))
  return workdir


def open_vocabulary(workdir: str) -> Store:
  """Returns the store without text that `ensure_vocabulary` made possible: `vocab` in its directory
  has the files."""
  vocabulary = read_vocabulary(pathlib.Path(workdir, 'vocab'))
  return without_text(workdir, vocabulary.meta, vocabulary.word_starts)


def is_finished(data: Any) -> bool:
  """Returns True if `config.data` names finished examples, not text to make them from."""
  return _example_tasks().registered_examples(data) is not None


def open_streams(config: Any, store: Store) -> tuple[StreamedRows, Fixed | None]:
  """Opens what `config.data.mixture` or `input` of a phase names: a Task of examples, or text.

  Returns the rows to train on, endless and shuffled by config.seed, and those of a split
  'validation' or of the text config.data.heldout, or None. Raises UserError if nothing has this
  name, or its examples are not of config.length or the vocabulary.
  """
  data, name = config.data, config.data.mixture or config.data.input
  example_tasks = _example_tasks()
  vocab = str(store.path / 'vocab')
  provider = example_tasks.registered_examples(data)
  if provider is None:
    provider = example_tasks.example_task('streamed', name, vocab, data, config.length)

  def read(provider: Any, skip: int, **options) -> Iterator[Batch]:
    for batch in example_tasks.read_rows(provider, skip, **options):
      yield _checked(name, batch, config.length, store.vocabulary_size)

  training = StreamedRows(
    name, lambda skip: read(provider, skip, seed=config.seed), config.batch_size
  )
  atexit.register(training.close)  # while there still is an interpreter for tf.data to call
  held_out, split = provider, 'validation'
  if data.heldout:
    recipe, split = dict(data) | dict(documents=0), 'train'
    if 'predicted' in data.mask:  # all that is hidden, so that the text can be restored
      recipe['mask'] = dict(data.mask) | dict(predicted=0)
    held_out = example_tasks.example_task(
      'held_out', data.heldout, vocab, recipe, config.length, config.seed
    )
  if split not in held_out.splits:
    return training, None
  counts = [s.examples for s in config.evals.values() if s.type == 'loss']
  limit = 0 if 0 in counts else max(counts, default=0)
  batches = list(read(held_out, 0, split=split, limit=limit))
  row = {key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]}
  return training, Fixed(store, row)


def _example_tasks() -> Any:
  """Returns the module, which imports TensorFlow and registers bertjax's own names."""
  from bertjax.examples.seqio_tasks import example_tasks, loaded, registered  # noqa: F401

  loaded.leave_gpus()
  return example_tasks


def _checked(name: str, batch: Batch, length: int, vocabulary_size: int) -> Batch:
  if (found := sizes(batch)['T']) != length:
    raise UserError(f'the examples of {name} have {found} tokens, but config.length={length}')
  ids = ('token_BT', 'target_BP', 'out_token_BU', 'target_BU')
  highest = max(int(batch[key].max()) for key in ids if key in batch)
  if highest >= vocabulary_size:
    raise UserError(
      f'{name} has the id {highest}, but the vocabulary of config.data.vocab has {vocabulary_size} '
      'ids: name the one that its examples were made with'
    )
  return dict(dropped_B=np.zeros(len(batch['token_BT']), np.int32)) | batch
