"""Examples of unequal lengths, end to end in flat arrays, and their places in the rows of a batch.

Plans and maskings work on flat arrays (suffix n: one entry per real token of the batch; E: one per
example), so that padding costs nothing and packed rows are no special case. `place` lays a flat
array out as [B, T].
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from bertjax.data_contracts import PREFIX, Ranges, Stream

TEXT = -1  # a part of an example that is text, see `joined`


class Rows(NamedTuple):
  """A batch before padding."""

  ranges: Ranges  # where its examples lie in the store, row by row, in the order of their columns
  token_n: np.ndarray  # int32 ids, special tokens included
  # int32 token after each example, which goes on in the next batch; None: they end
  after_E: np.ndarray | None
  key_E: np.ndarray  # uint64 key of each example's draws
  row_E: np.ndarray  # int64 row of each example, ascending
  slot_E: np.ndarray  # int64 place of each example among those of its row, from 0
  example_n: np.ndarray  # int64 example of each token
  position_n: np.ndarray  # int64 position of each token in its example, from 0
  cell_n: np.ndarray  # int64 row * T + column of each token, ascending
  shape: tuple[int, int]  # (B, T)
  number_B: np.ndarray  # int64 number of each row in the order of reading, over all epochs
  seed: int  # of draws that rows share

  @property
  def length_E(self) -> np.ndarray:
    """int64 tokens of each example, special ones included."""
    return self.ranges.length_E


def ragged(length_n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns (owner, offset) of the elements of ranges of these lengths laid end to end, both int64.
  Example: lengths 2, 0, 3 give owner 0 0 2 2 2 and offset 0 1 0 1 2."""
  owner = np.repeat(np.arange(len(length_n)), length_n)
  return owner, np.arange(len(owner)) - starts(length_n)[owner]


def number_within(group_n: np.ndarray) -> np.ndarray:
  """Returns the number of each entry in its group, from 0, int64; groups lie side by side and
  ascend. Example: groups 3 3 5 7 7 7 give 0 1 0 0 1 2."""
  return np.arange(len(group_n)) - np.searchsorted(group_n, group_n)


def ranks(draw_n: np.ndarray, group_n: np.ndarray) -> np.ndarray:
  """Returns the rank of each draw in its group, from 0, int64; groups as of `number_within`."""
  rank_n = np.empty(len(draw_n), np.int64)
  rank_n[np.lexsort((draw_n, group_n))] = number_within(group_n)
  return rank_n


def begins(index_n: np.ndarray, group_n: np.ndarray) -> np.ndarray:
  """Returns bool [n]: the index, ascending, does not follow the one before it in its group."""
  return (np.diff(index_n, prepend=-2) != 1) | (np.diff(group_n, prepend=-1) != 0)


def windows(documents: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
  """Yields ranges (first, last) of documents with about this many sentences, or one document."""
  first = 0
  while first < len(documents) - 1:
    full = np.searchsorted(documents, documents[first] + most, 'right') - 1
    last = max(first + 1, int(full))
    yield first, last
    first = last


def starts(length_n: np.ndarray) -> np.ndarray:
  """Returns where each of these ranges begins when they are laid end to end, int64 [n]."""
  return np.cumsum(length_n) - length_n


def joined(*parts: tuple[Any, Any]) -> dict[str, Any]:
  """Returns special_s, id_s and length_E of `Ranges` whose examples all have these parts in turn:
  (id of a special token, 1; 0 where there is none), or (TEXT, tokens); numbers or arrays [E]."""
  every = np.broadcast_arrays(*(id for id, _ in parts), *(size for _, size in parts))
  id_x, size_x = in_turn(*every[: len(parts)]), in_turn(*every[len(parts) :])
  special_x = (id_x != TEXT) & (size_x > 0)
  length_E = size_x.reshape(-1, len(parts)).sum(1)
  return dict(special_s=starts(size_x)[special_x], id_s=id_x[special_x], length_E=length_E)


def in_turn(*value_E: np.ndarray) -> np.ndarray:
  """Returns the first value of each array, then the second of each, and so on."""
  return np.stack(value_E, 1).ravel()


def segments(*size_E: np.ndarray) -> np.ndarray:
  """Returns `Ranges.type_n` of examples of so many tokens of segment 0, of 1, and so on."""
  number_S = np.tile(np.arange(len(size_E), dtype=np.int32), len(size_E[0]))
  return np.repeat(number_S, in_turn(*size_E))


def truncated(a_n: np.ndarray, b_n: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns how many tokens A and B lose, one by one from the longer (B in a tie), to the limit."""
  excess_n = np.maximum(a_n + b_n - limit, 0)
  a_first_n = np.clip(a_n - b_n, 0, excess_n)
  b_first_n = np.clip(b_n - a_n, 0, excess_n)
  rest_n = excess_n - a_first_n - b_first_n  # by now both are equally long
  return a_first_n + rest_n // 2, b_first_n + (rest_n + 1) // 2


def fill(total: int, special_n: np.ndarray, id_n: np.ndarray | int, body: np.ndarray) -> np.ndarray:
  """Returns int32 [total]: the special ids at the places special_n, the body in all others."""
  token_n = np.empty(total, np.int32)
  plain_n = np.ones(total, bool)
  plain_n[special_n] = False
  token_n[special_n] = id_n
  token_n[plain_n] = body
  return token_n


def tokens(ranges: Ranges, store: Any) -> tuple[np.ndarray, np.ndarray | None]:
  """Gathers the tokens of examples, special ones included, int32 [n], and the token after each
  example, int32 [E], where the ranges read ahead."""
  body_n = _ordered(ranges, store.gather(ranges.start_r, ranges.length_r))
  token_n = fill(_places(ranges), ranges.special_s, ranges.id_s, body_n)
  if not ranges.ahead:
    return token_n, None
  after_E = np.cumsum(ranges.length_E + 1) - 1
  return np.delete(token_n, after_E), token_n[after_E]


def units(rows: Rows, store: Any) -> np.ndarray:
  """Returns what the store's units say of each token, uint8; 1 for special tokens."""
  ranges = rows.ranges
  body_n = _ordered(ranges, store.gather_units(ranges.start_r, ranges.length_r))
  return _shown(ranges, fill(_places(ranges), ranges.special_s, 1, body_n)).astype(np.uint8)


def column(rows: Rows, store: Any, name: str) -> np.ndarray:
  """Returns the value of each token's sentence in a column of the store, int32."""
  return store.column(name)[sentences(rows, store)].astype(np.int32)


def sentences(rows: Rows, store: Any) -> np.ndarray:
  """Returns the sentence of the store that each token is of, int64; a special token has that of the
  token before it in its example, or after it where there is none."""
  ranges = rows.ranges
  kept_r = ranges.length_r > 0
  start_r, length_r = ranges.start_r[kept_r], ranges.length_r[kept_r]
  first_r = np.searchsorted(store.sentences, start_r, 'right') - 1
  last_r = np.searchsorted(store.sentences, start_r + length_r, 'left')
  # Most ranges are several sentences: their tokens are counted sentence by sentence.
  owner_n, offset_n = ragged(last_r - first_r)
  sentence_n = first_r[owner_n] + offset_n
  end_n = (start_r + length_r)[owner_n]
  size_n = np.minimum(store.sentences[sentence_n + 1], end_n) - np.maximum(
    store.sentences[sentence_n], start_r[owner_n]
  )
  number_n = _ordered(ranges, np.repeat(sentence_n, size_n))
  plain_n = np.ones(_places(ranges), bool)
  plain_n[ranges.special_s] = False
  until_n = np.cumsum(plain_n)
  length_E = ranges.length_E + ranges.ahead
  before_E = (until_n - plain_n)[starts(length_E)]
  at_n = np.maximum(until_n - 1, np.repeat(before_E, length_E))
  return _shown(ranges, number_n[np.minimum(at_n, len(number_n) - 1)])


def _places(ranges: Ranges) -> int:
  """Counts the places that the examples take, with the tokens read ahead."""
  return int(ranges.length_E.sum()) + ranges.ahead * len(ranges.length_E)


def _ordered(ranges: Ranges, body_n: np.ndarray) -> np.ndarray:
  return body_n if ranges.order_n is None else body_n[ranges.order_n]


def _shown(ranges: Ranges, value_n: np.ndarray) -> np.ndarray:
  return np.delete(value_n, np.cumsum(ranges.length_E + 1) - 1) if ranges.ahead else value_n


def lay_out(
  ranges: Ranges,
  store: Any,
  row_E: np.ndarray,
  key_E: np.ndarray,
  shape: tuple[int, int],
  number_B: np.ndarray | None = None,
  seed: int = 0,
) -> Rows:
  """Gathers the tokens of examples, in row order, and places them side by side in rows of `shape`
  (B, T), each of which has room for its own. `number_B` are the numbers of the rows, 0, 1, .. by
  default; `seed` is of draws that rows share."""
  slot_E = number_within(row_E)
  number_B = np.arange(shape[0]) if number_B is None else number_B
  return Rows(
    ranges, *tokens(ranges, store), key_E, row_E, slot_E,
    *_places_of(ranges.length_E, row_E, slot_E, shape[1]), shape, number_B, seed,
  )  # fmt: skip


def _places_of(length_E, row_E, slot_E, columns):
  """Returns example_n, position_n and cell_n of examples side by side in rows of these columns."""
  example_n, position_n = ragged(length_E)
  start_E = starts(length_E)
  column_E = start_E - start_E[np.arange(len(row_E)) - slot_E]
  return example_n, position_n, (row_E * columns + column_E)[example_n] + position_n


def shifted(rows: Rows, text: Stream, start: int) -> Stream:
  """Returns a text that a noise made of the examples of `rows` as a decoder's: each column reads
  the token before its target, the first of an example `start`."""
  example_m = rows.example_n[text.source_m]
  first_m = np.append(True, example_m[1:] != example_m[:-1])
  read_m = np.where(first_m, start, np.roll(text.token_m, 1))
  field = dict(target=text.token_m, weight=np.ones(len(read_m), np.float32))
  return Stream(read_m.astype(np.int32), text.source_m, field)


def frame_streams(
  rows: Rows, made: Mapping[str, Stream], size: Mapping[str, int], max_examples: int, pad: int
) -> dict[str, np.ndarray]:
  """Lays the texts that a noise made of the examples of `rows` out in the same rows: letter ->
  text, with `size` columns of a row. Raises ValueError where a text has more, or none of an
  example. `pad` is the id where there is no token."""
  batch: dict[str, np.ndarray] = {}
  for letter, stream in made.items():
    own = _relaid(rows, stream, letter, size[letter])
    texts = frame(own, max_examples) if letter == 'T' else _numbers(own, letter)
    texts[f'{PREFIX[letter]}token_B{letter}'] = place(own, stream.token_m, pad)
    for name, value_m in stream.field.items():
      dtype = np.float32 if np.issubdtype(value_m.dtype, np.floating) else np.int32
      axes = letter + 'W' * (value_m.ndim - 1)
      texts[f'{name}_B{axes}'] = place(own, value_m, 0, dtype)
    batch |= texts
  return batch


def _relaid(rows: Rows, stream: Stream, letter: str, columns: int) -> Rows:
  source_m, ranges = stream.source_m, rows.ranges
  length_E = np.bincount(rows.example_n[source_m], minlength=len(rows.row_E))
  most = int(np.bincount(rows.row_E, length_E).max())
  if most > columns or not length_E.all():
    raise ValueError(
      f'the noise makes up to {most} columns {letter} of the examples of a row, and '
      f'{length_E.min()} at least of an example: expected at most {columns}, as its sizes say, and '
      '1 at least'
    )
  ranges = ranges._replace(
    length_E=length_E,
    type_n=None if ranges.type_n is None else ranges.type_n[source_m],
    table={name: value_n[source_m] for name, value_n in ranges.table.items()},
    position_n=None,
  )
  example_m, position_m, cell_m = _places_of(length_E, rows.row_E, rows.slot_E, columns)
  return rows._replace(
    ranges=ranges, token_n=stream.token_m, example_n=example_m, position_n=position_m,
    cell_n=cell_m, shape=(rows.shape[0], columns),
  )  # fmt: skip


def place(
  rows: Rows, value_n: np.ndarray, fill_value: int = 0, dtype: Any = np.int32
) -> np.ndarray:
  """Lays one number per token, or one vector, out as [B, T], with fill_value where there is no
  token."""
  cell = np.full((rows.shape[0] * rows.shape[1], *value_n.shape[1:]), fill_value, dtype)
  cell[rows.cell_n] = value_n
  return cell.reshape(*rows.shape, *value_n.shape[1:])


def frame(rows: Rows, max_examples: int) -> dict[str, np.ndarray]:
  """Returns the keys of the batch schema that do not depend on the masking; max_examples is G,
  packed examples per row, 1 where rows are not packed."""

  def slots(value_E, dtype):
    out_BG = np.zeros((rows.shape[0], max_examples), dtype)
    out_BG[rows.row_E, rows.slot_E] = value_E
    return out_BG

  ranges, first_n = rows.ranges, np.searchsorted(rows.example_n, np.arange(len(rows.row_E)))
  type_n = np.zeros(len(rows.token_n), np.int32) if ranges.type_n is None else ranges.type_n
  batch = dict(
    **_numbers(rows, 'T'),
    type_BT=place(rows, type_n),
    first_BG=slots(rows.cell_n[first_n] % rows.shape[1], np.int32),
    example_weight_BG=slots(1.0, np.float32),
  )
  if ranges.position_n is not None:
    batch['position_BT'] = place(rows, ranges.position_n)
  batch |= {f'{name}_B': value_E.astype(np.int32) for name, value_E in ranges.row.items()}
  batch |= {f'{name}_BT': place(rows, value_n) for name, value_n in ranges.table.items()}
  return batch | {f'{name}_BG': slots(label, np.int32) for name, label in ranges.label.items()}


def _numbers(rows: Rows, letter: str) -> dict[str, np.ndarray]:
  return {
    f'{PREFIX[letter]}example_B{letter}': place(rows, (rows.slot_E + 1)[rows.example_n]),
    f'{PREFIX[letter]}position_B{letter}': place(rows, rows.position_n),
  }
