"""Rows of a token store: any of them, at any time, by any host."""

from typing import Any

from bertjax.data_contracts import Reader
from bertjax.examples import examples, unread_text
from bertjax.examples.plan_and_mask import OF_ROWS
from bertjax.store import ensure as ensure_store
from bertjax.store.reader import Store, open_store


def _rows(config: Any, store: Store, fallback: str | None) -> tuple[examples.Examples, None]:
  """Returns the store's rows; what it holds out is a store of its own beside it."""
  made = examples.make_examples(
    examples.read_by(store, config.model), config.data, config.length, config.seed, fallback,
    config.batch_size, examples.tables_of(config.model),
  )  # fmt: skip
  return made, None


OF_RUN = ('store', 'workers', *ensure_store.MADE_OF)
READER = Reader(
  reads=('plan', 'mask', *OF_ROWS, *OF_RUN),
  ensure=ensure_store.ensure_store,
  open=open_store,
  rows=_rows,
  says=lambda phases, path: f'Reading the store {path}',
  text=True,
  of_run=tuple(key for key in OF_RUN if key != 'languages'),  # each phase numbers them
  check=lambda config: unread_text.check(config, examples.tables_of(config.model)),
)
