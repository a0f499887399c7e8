"""Rows that are streamed from a seqio Task or Mixture, without a store."""

from collections.abc import Sequence
from typing import Any

from bertjax.data import ensure_store
from bertjax.data.seqio_tasks import row_stream
from bertjax.data.store.reader import Store
from bertjax.data.types import Reader


def _ensure(data: Any, seed: int, workdir: str) -> str:
  """Keeps the vocabulary in the workdir; returns the workdir."""
  given = ensure_store.vocabulary(data, ensure_store.text(data), seed, workdir)
  return row_stream.ensure_vocabulary(data, workdir, given)


def _rows(
  config: Any, store: Store, fallback: str | None
) -> tuple[row_stream.Stream, row_stream.Fixed | None]:
  del fallback  # no plan
  return row_stream.open_streams(config, store)


def _says(phases: Sequence[Any], path: str) -> str:
  del path
  data = phases[0].data
  return (
    f'Streaming {data.mixture or data.input} through seqio: slower than a store; '
    'nothing is held out unless it has a split validation; a resume reads past what it has seen'
  )


OF_THE_TEXT = (
  'input', 'mixture', 'module', 'split', 'errors', 'field', 'skip_bad', 'documents', 'columns',
  'lexicon', 'segmenter',
)  # fmt: skip
READER = Reader(
  reads=(
    'plan',
    'mask',
    'pack',
    'language_alpha',
    'language_block',
    'train_vocab',
    *OF_THE_TEXT,
  ),
  ensure=_ensure,
  open=row_stream.open_vocabulary,
  rows=_rows,
  says=_says,
  repeats=False,
  of_run=('vocab', 'train_vocab'),
)
