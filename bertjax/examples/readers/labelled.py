"""Rows of files of labelled examples, all in memory."""

from collections.abc import Sequence
from typing import Any

from bertjax.data_contracts import Reader
from bertjax.examples.labelled.common import extra_ids, from_config, rows
from bertjax.examples.seqio_tasks import row_stream
from bertjax.store.reader import Store


def _ensure(data: Any, seed: int, workdir: str) -> str:
  """Keeps the vocabulary in the workdir; returns the workdir."""
  del seed  # nothing is drawn
  return from_config.ensure_vocabulary(data, workdir)


def _rows(config: Any, store: Store, fallback: str | None) -> tuple[rows.Rows, None]:
  """Returns the rows to learn from; evaluators name their own files."""
  del fallback  # no plan
  data = config.data
  key, together = 'config.data.train', config.batch_size
  return from_config.open_rows(config, data.train, key, store, data.examples, together), None


def _says(phases: Sequence[Any], path: str) -> str:
  files = {}
  for config in phases:
    ids = ', '.join(f'{name} {number}' for name, number in extra_ids.ids(config).items())
    files[config.data.train + f' ({ids})' * bool(ids)] = None  # ids that all tokens share
  return f'Learning from the labels of {", ".join(files)}'


READER = Reader(
  reads=('task', 'train', 'dev', 'examples', 'length_block', 'language'),
  ensure=_ensure,
  open=row_stream.open_vocabulary,
  rows=_rows,
  says=_says,
  unit=rows.UNIT,
  of_run=('vocab', 'lowercase'),
)
