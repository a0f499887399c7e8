"""XLNet's rows: a stretch of a column, and two segments after it. zihangdai/xlnet, data_utils.py.

  [ the next reuse_len tokens of the column | A SEP B SEP CLS ]     segments 0 .. 0 | 0 0 1 1 2

The column moves on by reuse_len tokens, so a row reads ahead what the next ones begin with, and
memory is kept of the first part alone. A begins behind it and ends where a sentence begins, drawn
from those within the room for both, or at the first one beyond if there are none. By a coin B goes
on where A ends, up to the first sentence that begins beyond the room (label 1), or is what a
uniform span of the same column touches, whole sentences (label 0, also without a coin where A has
no place to end). The longer one, B of two equal ones, loses tokens at its right until both fit. The
label is trained by nothing.

With `both_directions` the first half of the rows read their columns forwards and the
others the same columns backwards, which `direction_B` tells. Documents end with <eod>.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from bertjax import counter_rng
from bertjax.data_contracts import Chosen, Piece, Plan, Ranges, Spec
from bertjax.errors import UserError
from bertjax.examples import layout
from bertjax.examples.column_stream import ColumnStream, Order
from bertjax.field_types import Count

_COIN, _CUT, _PLACE = range(3)


@dataclasses.dataclass(frozen=True)
class Options:
  """Fields of `config.data.plan`.

  Attributes:
    reuse_len: tokens of the first part, which memory is kept of.
    both_directions: half of the rows read their columns backwards.
  """

  reuse_len: Count
  both_directions: bool = True


def build(store, spec: Spec) -> Iterator[Piece]:
  """Makes the plan, how many rows an epoch has; see `Plan.build`. Where their tokens lie follows
  from `ranges`. Raises UserError: an odd number of rows with both_directions, or no room for A and
  B."""
  options, length = spec.options, spec.length
  if options.both_directions and spec.rows % 2:
    raise UserError(
      'config.data.plan.both_directions reads each column forwards in one row and backwards in '
      f'another: expected an even batch_size, got {spec.rows}; or set both_directions=False'
    )
  if options.reuse_len > length - 5:
    raise UserError(
      'config.data.plan.reuse_len must leave room for A SEP B SEP CLS: expected 1 .. '
      f'{length - 5} of config.length={length}, got {options.reuse_len}'
    )
  size = _stream(store, spec).size
  steps = max((size - length) // options.reuse_len + 1, 0) if size >= length else 0
  return iter([(dict(length=np.full(steps * spec.rows, length, np.int32)), {})])


def ranges(store, spec: Spec, chosen: Chosen) -> Ranges:
  """Returns the `Ranges` of some rows of an epoch, each in its reading direction."""
  stream, index_E, reuse = _stream(store, spec), chosen.index_E, spec.options.reuse_len
  order = stream.order(chosen.epoch if chosen.shuffle else None)
  root = counter_rng.fold(counter_rng.root(spec.seed, 'xlnet_rows'), chosen.epoch)
  step_E, lane_E = np.divmod(index_E, spec.rows)
  backward_E = lane_E >= stream.columns
  column = _Columns(stream, order, lane_E % stream.columns * stream.size, backward_E)
  start_E = step_E * reuse
  after_E, room = start_E + reuse, spec.length - reuse - 3
  a_E, b_from_E, b_E, label_E = _segments(column, after_E, room, counter_rng.fold(root, index_E))
  reuse_E = np.full(len(index_E), reuse)
  cls, sep = store.special['cls'], store.special['sep']
  text = layout.TEXT
  marks = layout.joined((text, reuse_E + a_E), (sep, 1), (text, b_E), (sep, 1), (cls, 1))
  owner_r = np.repeat(np.arange(len(index_E)), 3)
  start_r, length_r, order_n, end_n = column.ranges(
    owner_r, layout.in_turn(start_E, after_E, b_from_E), layout.in_turn(reuse_E, a_E, b_E)
  )
  body_n = np.delete(np.arange(len(index_E) * spec.length), marks['special_s'])
  return Ranges(
    start_r=start_r,
    length_r=length_r,
    special_s=np.append(marks['special_s'], body_n[end_n]),
    id_s=np.append(marks['id_s'], np.full(len(end_n), stream.ends)),
    length_E=marks['length_E'],
    type_n=layout.segments(reuse_E + a_E + 1, b_E + 1, np.ones_like(b_E)),
    label=dict(follows=label_E),
    row=dict(start=step_E == 0, direction=np.where(backward_E, -1, 1)),
    order_n=order_n,
  )


def _stream(store, spec: Spec) -> ColumnStream:
  columns = spec.rows // 2 if spec.options.both_directions else spec.rows
  return ColumnStream(store, columns, store.special['eod'], spec.seed)


def _segments(column, after_E, room, key_E):
  """Returns the size of A, the place where B begins and its size, and the label."""
  # Sentences further away than twice the room change nothing: they are cut off again.
  limit_E = np.minimum(after_E + 2 * room, column.size)
  owner_c, place_c = column.sentence_starts(after_E + 1, limit_E)
  size_c = place_c - after_E[owner_c]
  within_c = size_c < room
  cuts_E = np.bincount(owner_c[within_c], minlength=len(after_E))
  beyond_E = limit_E - after_E
  np.minimum.at(beyond_E, owner_c[~within_c], size_c[~within_c])

  draw = lambda site, bound_E: counter_rng.below(counter_rng.fold(key_E, site), bound_E)
  first_E = np.searchsorted(owner_c, np.arange(len(after_E)))
  cut_E = first_E + draw(_CUT, np.maximum(cuts_E, 1))
  a_E = beyond_E.copy()
  a_E[cuts_E > 0] = size_c[cut_E[cuts_E > 0]]
  follows_E = (cuts_E > 0) & (counter_rng.uniform(counter_rng.fold(key_E, _COIN)) >= 0.5)

  span_E = np.maximum(room - a_E, 1)
  from_E = draw(_PLACE, column.size - span_E)
  low_E = column.sentence_around(from_E)[0]
  high_E = column.sentence_around(from_E + span_E - 1)[1]
  low_E, high_E = np.maximum(low_E, 0), np.minimum(high_E, column.size - 1)
  b_from_E = np.where(follows_E, after_E + a_E, low_E)
  b_E = np.where(follows_E, beyond_E - a_E, high_E - low_E)
  a_E = a_E - layout.truncated(a_E, b_E, room)[0]
  return a_E, b_from_E, room - a_E, follows_E


class _Columns:
  """The columns of some rows, in the direction in which each is read: places count from 0."""

  def __init__(
    self, stream: ColumnStream, order: Order, first_E: np.ndarray, backward_E: np.ndarray
  ):
    self.size = stream.size
    self._stream, self._order = stream, order
    # A place p of the column is first + sign * p in the stream.
    self._sign_E = np.where(backward_E, -1, 1)
    self._first_E = np.where(backward_E, first_E + stream.size - 1, first_E)

  def _span(self, row_n, begin_n, end_n):
    """Returns the range of the stream that a range of columns is."""
    sign_n, first_n = self._sign_E[row_n], self._first_E[row_n]
    ahead_n = sign_n > 0
    begin = np.where(ahead_n, first_n + begin_n, first_n - end_n + 1)
    return begin, begin + end_n - begin_n

  def ranges(self, row_n: np.ndarray, begin_n: np.ndarray, length_n: np.ndarray):
    """Maps ranges of the columns to ranges of the store. Returns start_r, length_r and order_n of
    `Ranges`, and the places of the tokens that end documents, with the ranges laid end to end as
    they are read."""
    begin, _ = self._span(row_n, begin_n, begin_n + length_n)
    start_r, length_r, end_m = self._stream.ranges(self._order, begin, length_n)
    owner_m, offset_m = layout.ragged(length_n)
    last_m = layout.starts(length_n)[owner_m] + length_n[owner_m] - 1
    back_m = self._sign_E[row_n][owner_m] < 0
    read_m = np.where(back_m, last_m - offset_m, np.arange(len(owner_m)))
    plain_m = np.ones(len(owner_m), bool)
    plain_m[end_m] = False
    number_m = np.cumsum(plain_m) - 1
    plain_n = plain_m[read_m]
    return start_r, length_r, number_m[read_m][plain_n], np.flatnonzero(~plain_n)

  def sentence_starts(self, begin_E, end_E):
    """Finds sentence starts in reading order, see `ColumnStream.sentence_starts`."""
    row_E = np.arange(len(begin_E))
    ahead_E = self._sign_E > 0
    begin, end = self._span(row_E, begin_E, end_E)
    # Read backwards, a sentence starts one place before another one does in the stream.
    owner_c, place_c = self._stream.sentence_starts(
      self._order, np.where(ahead_E, begin, begin + 1), np.where(ahead_E, end, end + 1)
    )
    place_c = place_c - ~ahead_E[owner_c]
    place_c = (place_c - self._first_E[owner_c]) * self._sign_E[owner_c]
    by_place = np.lexsort((place_c, owner_c))
    return owner_c[by_place], place_c[by_place]

  def sentence_around(self, place_E):
    """Returns begin and end of the sentence at each place; they may lie beyond the column."""
    begin, end = self._stream.sentence_around(self._order, self._first_E + self._sign_E * place_E)
    ahead_E = self._sign_E > 0
    low_E = np.where(ahead_E, begin - self._first_E, self._first_E - end + 1)
    return low_E, low_E + end - begin


PLAN = Plan(Options, ('cls', 'sep', 'eod'), build, ranges, ordered=True, row=('start', 'direction'))
