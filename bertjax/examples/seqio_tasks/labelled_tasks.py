"""Labelled examples as seqio Tasks: the rows that a run of fine-tuning reads, in their order.

One example is one row of the batch of `bertjax.types`, of the full length; its features are named
like the arrays, without their B: token_BT is token_T, label_BG is label_G.

  files = dict(train='train.tsv', validation='dev.tsv')
  add_labelled('mine', glue.get_config('sst2').data.task, files, 'vocab.txt', length=128)
  seqio.get_mixture_or_task('mine').get_dataset(None, split='train', shuffle=True)
"""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from bertjax.data_contracts import Labelled
from bertjax.errors import UserError
from bertjax.examples.labelled.common import from_config, rows
from bertjax.examples.seqio_tasks.example_tasks import features
from bertjax.examples.seqio_tasks.loaded import seqio, tf
from bertjax.examples.seqio_tasks.windows import feature_name
from bertjax.vocab.vocabulary import Vocabulary, load_vocabulary

Row = dict[str, np.ndarray]


def labelled_task(
  name: str,
  task: Mapping[str, Any],
  files: Mapping[str, str],
  vocab: str,
  length: int,
  lowercase: bool | None = None,
  language: str = '',
) -> seqio.Task:
  """Builds a Task of rows of labelled examples, not registered; seqio shuffles them. `task` is
  `config.data.task`, as of a recipe of configs/finetune; `files` has for each split a file as
  `config.data.train` names one. Rows, or their parts, have `length` tokens; `language` is of the
  texts, for a vocabulary that cuts words by its rules. Raises UserError as `from_config.open_rows`,
  of all but the first example when they are read."""
  if not files:
    raise UserError(f'the Task {name!r} has no files: expected a split and its file, or several')
  kind, options = from_config.task_of(ConfigDict(task))
  vocabulary = load_vocabulary(vocab, lowercase)
  if vocabulary.check_language:
    if not language:
      raise UserError(
        f'{vocab} cuts words by the rules of their language: expected language, got none'
      )
    vocabulary = vocabulary.of_language(language)

  @functools.cache  # seqio asks in each epoch
  def encoded(split: str, limit: int = 0) -> Labelled:
    key = f'files of the Task {name!r}, {split}'
    records = list(from_config.examples_of(kind, options, files[split], key, limit))
    return kind.encode(records, options, vocabulary, length)

  first = next(_rows(encoded(next(iter(files)), 1), vocabulary, length))
  spec = {feature_name(k): tf.TensorSpec(v.shape[1:], v.dtype) for k, v in first.items()}

  def dataset(split: str, shuffle_files: bool = False, seed: int | None = None) -> tf.data.Dataset:
    def read() -> Iterator[dict[str, np.ndarray]]:
      for row in _rows(encoded(split), vocabulary, length):
        yield {feature_name(key): value[0] for key, value in row.items()}

    return tf.data.Dataset.from_generator(read, output_signature=spec)

  source = seqio.FunctionDataSource(dataset, splits=tuple(files))
  return seqio.Task(name, source, output_features=features(first), preprocessors=[])


def add_labelled(name: str, *args: Any, **options: Any) -> None:
  """Registers a `labelled_task`, whose arguments it takes."""
  seqio.TaskRegistry.add_provider(name, labelled_task(name, *args, **options))


def _rows(examples: Labelled, vocabulary: Vocabulary, length: int) -> Iterator[Row]:
  """Each example as a batch of one row of the full length."""
  served: Any = vocabulary  # of a store they read the ids of special tokens alone
  found = rows.Rows(served, examples, length * rows.parts_of(examples), seed=0, together=1)
  pad = vocabulary.special['pad'] or 0
  padding, columns = (
    dict(token_BT=pad, out_token_BU=pad),
    dict(BT=found.length, BU=examples.columns),
  )
  for number in range(found.rows):
    row = found.batch(np.array([number]), shuffle=False)
    for key in [key for key in row if key[-2:] in columns]:
      rest = columns[key[-2:]] - row[key].shape[1]
      row[key] = np.pad(row[key], ((0, 0), (0, rest)), constant_values=padding.get(key, 0))
    yield row
