"""Labelled examples of a seqio Task or Mixture of the user's: its features are their columns.

  seqio:MODULE:NAME:SPLIT   MODULE is imported and registers NAME; SPLIT is one of its splits

It is read once, in its own order, as a file is.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bertjax import registry
from bertjax.errors import UserError, choose
from bertjax.examples.seqio_tasks import corpora
from bertjax.examples.seqio_tasks.loaded import leave_gpus, seqio


def examples(path: str) -> Iterator[Mapping[str, Any]]:
  """Yields the examples of a split (see above): texts as strings, numbers and lists as those of
  Python. Raises UserError: another form of name, or a module, Task or split that is not there."""
  parts = path.split(':')
  if len(parts) != 4 or not all(parts):
    raise UserError(
      f'{path!r}: expected seqio:MODULE:NAME:SPLIT, as in seqio:my_tasks:opinions:train'
    )
  _, module, name, split = parts
  leave_gpus()
  registry.load(module, path)
  choose(name, corpora.registered_names(), path)
  task: Any = seqio.get_mixture_or_task(name)
  choose(split, task.splits, f'{path}, splits')
  dataset = task.get_dataset(None, split=split, shuffle=False, num_epochs=1)
  for each in dataset.as_numpy_iterator():
    yield {column: _value(value) for column, value in each.items()}


def _value(value: Any) -> Any:
  """In types of Python, bytes as text."""
  if isinstance(value, bytes):
    return value.decode()
  if isinstance(value, np.ndarray):
    return [_value(each) for each in value]
  return value.item()
