"""Rows that are streamed from a seqio Task or Mixture, without a store."""

from collections.abc import Sequence
from typing import Any

from bertjax.data_contracts import Reader
from bertjax.errors import UserError
from bertjax.examples.plan_and_mask import OF_ROWS
from bertjax.examples.seqio_tasks import row_stream
from bertjax.store import ensure as ensure_store


def _ensure(data: Any, seed: int, workdir: str) -> str:
  """Keeps the vocabulary in the workdir; returns the workdir."""
  if data.heldout and row_stream.is_finished(data):
    raise UserError(
      f'config.data.heldout={data.heldout} is text, but {data.mixture} has finished examples: give '
      "it a split 'validation', which is evaluated on"
    )
  ensure_store.clear_others(data, seed, workdir)
  given = ensure_store.vocabulary(data, ensure_store.text(data), seed, workdir)
  return row_stream.ensure_vocabulary(data, workdir, given)


def _check(config: Any) -> None:
  if 'backward' in config.model and config.model.backward:
    raise UserError(
      'config.model.backward=True reads the text from its end, and config.data.reader=seqio '
      "streams it from its start: expected config.data.reader='store'"
    )


def _says(phases: Sequence[Any], path: str) -> str:
  data = phases[0].data
  finished = (
    '. Its rows are finished examples: config.data.plan, mask and pack, and what says how text is '
    'read, have no effect'
  )
  return (
    f'Streaming {data.mixture or data.input} through seqio: slower than a store; nothing is held '
    'out but config.data.heldout or a split validation; a resume reads past what it has seen'
    f'{finished if row_stream.is_finished(data) else ""}'
  )


OF_THE_TEXT = tuple(key for key in ensure_store.MADE_OF if key != 'holdout')
READER = Reader(
  reads=('plan', 'mask', *OF_ROWS, *OF_THE_TEXT),
  ensure=_ensure,
  open=row_stream.open_vocabulary,
  rows=lambda config, store, fallback: row_stream.open_streams(config, store),
  says=_says,
  repeats=False,
  of_run=('vocab', 'train_vocab', 'heldout'),
  check=_check,
)
