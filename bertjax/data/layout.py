"""Examples of unequal lengths, end to end in flat arrays, and their places in the rows of a batch.

Plans and corruptions work on flat arrays (suffix n: one entry per real token of the batch; E: one
per example), so that padding costs nothing and packed rows are no special case. `place` lays a flat
array out as [B, T].
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from bertjax.errors import UserError


class Source(NamedTuple):
  """Where in a store the tokens of a `Text` come from.

  Attributes:
    start_n: int64, first token of each range of the store, in the order in which they are laid out.
    length_n: int64, tokens of each range, >= 0.
    special_n: int64, places in the text of the special tokens, which the store does not hold.
  """

  start_n: np.ndarray
  length_n: np.ndarray
  special_n: np.ndarray


class Text(NamedTuple):
  """What a plan assembles: examples end to end, special tokens included.

  Attributes:
    token_n: int32 ids.
    type_n: int32 segment, 0 or 1.
    length_E: int64 tokens of each example.
    label: name -> int32 [E]; becomes the batch's `<name>_BG`.
    extra: name -> int32, one per token; becomes the batch's `<name>_BT`.
    position_n: int32 positions that the model sees; None: each token's place in its example.
    source: where the tokens come from; None if the plan does not say.
    row: name -> int32 [E], of a plan whose examples are rows; becomes the batch's `<name>_B`.
    after_E: int32 token after each example, which goes on in the next batch; None: they end.
  """

  token_n: np.ndarray
  type_n: np.ndarray
  length_E: np.ndarray
  label: dict[str, np.ndarray]
  extra: Mapping[str, np.ndarray] = {}
  position_n: np.ndarray | None = None
  source: Source | None = None
  row: Mapping[str, np.ndarray] = {}
  after_E: np.ndarray | None = None


class Rows(NamedTuple):
  """A batch before padding.

  Attributes:
    text: the examples, row by row, in the order of their columns.
    key_E: uint64 key of each example's draws.
    row_E: int64 row of each example, ascending.
    slot_E: int64 place of each example among those of its row, from 0.
    example_n: int64 example of each token.
    position_n: int64 position of each token in its example, from 0.
    cell_n: int64 row * T + column of each token, ascending.
    shape: (B, T).
    number_B: int64 number of each row in the order of reading, over all epochs.
    seed: of draws that rows share.
  """

  text: Text
  key_E: np.ndarray
  row_E: np.ndarray
  slot_E: np.ndarray
  example_n: np.ndarray
  position_n: np.ndarray
  cell_n: np.ndarray
  shape: tuple[int, int]
  number_B: np.ndarray
  seed: int


def ragged(length_n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns (owner, offset) of the elements of ranges of these lengths laid end to end, both int64.

  Example: lengths 2, 0, 3 give owner 0 0 2 2 2 and offset 0 1 0 1 2.
  """
  owner = np.repeat(np.arange(len(length_n)), length_n)
  return owner, np.arange(len(owner)) - starts(length_n)[owner]


def starts(length_n: np.ndarray) -> np.ndarray:
  """Returns where each of these ranges begins when they are laid end to end, int64 [n]."""
  return np.cumsum(length_n) - length_n


def fill(total: int, special_n: np.ndarray, id_n: np.ndarray | int, body: np.ndarray) -> np.ndarray:
  """Returns int32 [total]: the special ids at the places special_n, the body in all others."""
  token_n = np.empty(total, np.int32)
  plain_n = np.ones(total, bool)
  plain_n[special_n] = False
  token_n[special_n] = id_n
  token_n[plain_n] = body
  return token_n


def units(text: Text, store) -> np.ndarray:
  """Returns what the store's units say of each token, uint8; 1 for special tokens.

  Raises:
    UserError: the store has no units.
  """
  source = _source(text)
  body = store.gather_units(source.start_n, source.length_n)
  return fill(len(text.token_n), source.special_n, 1, body).astype(np.uint8)


def column(text: Text, store, name: str) -> np.ndarray:
  """Returns the value of each token's sentence in a column of the store, int32.

  A special token has that of the token before it in its example, or after it where there is none.

  Raises:
    UserError: the store has no such column.
  """
  source, value_S = _source(text), store.column(name)
  kept_n = source.length_n > 0
  start_n, length_n = source.start_n[kept_n], source.length_n[kept_n]
  first_n = np.searchsorted(store.sentences, start_n, 'right') - 1
  last_n = np.searchsorted(store.sentences, start_n + length_n, 'left')
  # Most ranges are several sentences: their tokens are counted sentence by sentence.
  owner_n, offset_n = ragged(last_n - first_n)
  sentence_n = first_n[owner_n] + offset_n
  end_n = (start_n + length_n)[owner_n]
  size_n = np.minimum(store.sentences[sentence_n + 1], end_n) - np.maximum(
    store.sentences[sentence_n], start_n[owner_n]
  )
  value_n = np.repeat(value_S[sentence_n], size_n)
  plain_n = np.ones(len(text.token_n), bool)
  plain_n[source.special_n] = False
  until_n = np.cumsum(plain_n)
  before_E = (until_n - plain_n)[starts(text.length_E)]
  at_n = np.maximum(until_n - 1, np.repeat(before_E, text.length_E))
  return value_n[np.minimum(at_n, len(value_n) - 1)].astype(np.int32)


def _source(text: Text) -> Source:
  if text.source is None:
    raise UserError(
      'the plan does not say where its tokens come from: expected assemble() to set `source` of '
      'its rows.Text'
    )
  return text.source


def layout(
  text: Text,
  row_E: np.ndarray,
  key_E: np.ndarray,
  shape: tuple[int, int],
  number_B: np.ndarray | None = None,
  seed: int = 0,
) -> Rows:
  """Places examples side by side in their rows.

  Args:
    text: E examples, in row order.
    row_E: int64, ascending, below shape[0].
    key_E: uint64.
    shape: (B, T); the examples of a row have at most T tokens together.
    number_B: of the rows; 0, 1, .. by default.
    seed: of draws that rows share.
  """
  example_n, position_n = ragged(text.length_E)
  start_E = starts(text.length_E)
  slot_E = np.arange(len(row_E)) - np.searchsorted(row_E, row_E)
  column_E = start_E - start_E[np.arange(len(row_E)) - slot_E]
  cell_n = (row_E * shape[1] + column_E)[example_n] + position_n
  number_B = np.arange(shape[0]) if number_B is None else number_B
  return Rows(text, key_E, row_E, slot_E, example_n, position_n, cell_n, shape, number_B, seed)


def place(rows: Rows, value_n: np.ndarray, fill_value: int = 0) -> np.ndarray:
  """Lays one integer per token out as int32 [B, T], with fill_value where there is no token."""
  cell = np.full(rows.shape[0] * rows.shape[1], fill_value, np.int32)
  cell[rows.cell_n] = value_n
  return cell.reshape(rows.shape)


def frame(rows: Rows, max_examples: int) -> dict[str, np.ndarray]:
  """Returns the keys of the batch schema that do not depend on the corruption.

  Args:
    rows: the batch.
    max_examples: G, packed examples per row; 1 where rows are not packed.
  """

  def slots(value_E, dtype):
    out_BG = np.zeros((rows.shape[0], max_examples), dtype)
    out_BG[rows.row_E, rows.slot_E] = value_E
    return out_BG

  first_n = np.searchsorted(rows.example_n, np.arange(len(rows.row_E)))
  position_n = rows.position_n if rows.text.position_n is None else rows.text.position_n
  batch = dict(
    example_BT=place(rows, (rows.slot_E + 1)[rows.example_n]),
    type_BT=place(rows, rows.text.type_n),
    position_BT=place(rows, position_n),
    first_BG=slots(rows.cell_n[first_n] % rows.shape[1], np.int32),
    example_weight_BG=slots(1.0, np.float32),
  )
  batch |= {f'{name}_B': value_E.astype(np.int32) for name, value_E in rows.text.row.items()}
  batch |= {f'{name}_BT': place(rows, value_n) for name, value_n in rows.text.extra.items()}
  return batch | {f'{name}_BG': slots(label, np.int32) for name, label in rows.text.label.items()}
