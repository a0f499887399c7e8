"""The operands of the attention operation: what is an array, what is static, what is refused."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from bertjax.kernels import dropout as dropout_lib
from bertjax.types import Array


def _static(default):
  return dataclasses.field(default=default, metadata=dict(static=True))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Mask:
  """The keys that each query sees, as vectors; never a [T, S] array.

  The S = M + T keys are M of memory and then the queries' own columns, so query t stands at column
  M + t, and its distance to key s is M + t - s: positive towards the past. Query t sees key s iff
  all of these hold:

    example   `example_q[t] == example_k[s]`, and that id is not 0 (padding)
    causal    the mask is not causal, or the distance is not negative
    order     there are no orders, or `order_q[t] > order_k[s]`, or `see_self` and the distance is 0
    window    there is none, or `|distance| < window`, or `s < sinks`

  Two packed examples of 2 and 1 tokens and one pad, `example = [1 1 2 0]`:

        keys  1 1 2 0
    query 1   x x . .
          1   x x . .
          2   . . x .
          0   . . . .      a row that sees nothing returns zeros and passes no gradient
  """

  # example_q_BT, example_k_BS: int32 ids; 0 for padding and for memory that holds nothing yet
  example_q_BT: Array
  example_k_BS: Array
  # order_q_BT, order_k_BS: int32, or None for both
  order_q_BT: Array | None = None
  order_k_BS: Array | None = None
  # static, or None. Transformer-XL's same_length is causal with a window of mem_len.
  window: int | None = _static(None)
  sinks: int = _static(0)  # static; the window hides none of the first so many keys, of memory
  see_self: bool = _static(False)  # static (XLNet's content stream)
  causal: bool = _static(False)  # static; nothing is computed for later columns
  # static; a promise that nothing checks: each row of queries, and of keys, is one example in its
  # first columns and padding behind it. Implementations that know lengths alone need it.
  whole: bool = _static(False)

  def within(self, window: int | None) -> 'Mask':
    """Returns the mask with another window."""
    return dataclasses.replace(self, window=window)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Dropout:
  """Dropout on the attention probabilities, drawn by the counter hash of `kernels/dropout.py`: a
  static rate, the step's seed and rows, the uint32 site, and the global number of the first head
  here."""

  rate: float = dataclasses.field(metadata=dict(static=True))
  noise: dropout_lib.Noise
  site: Array
  head: Array | int = 0


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Segment:
  """XLNet's relative segments: a query with bias z_NH (r_s_bias) adds its product with one of two
  vectors, for the same segment and for another one (seg_embed). int32 segments; memory has 0."""

  z_NH: Array
  embedding_2NH: Array
  segment_q_BT: Array
  segment_k_BS: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Relative:
  """The terms that depend on distance or segment. Each is optional.

  `score[t, s] = ((q_t + u) . k_s + (q_t + w) . r[row] + k_s . p[row] + (q_t + z) . segment) * scale
                 + bias[row]`

  where row = far - distance: the first row belongs to the distance `far`, each next row to a
  distance one less. A table has all distances from S - 1 down to 1 - T, or ends at distance 0: then
  later keys are not visible. Conventions of the originals, with K = M + T:

    XLNet             rows for K .. 1 - T, or K .. 0 with attn_type uni       far = K
    Transformer-XL    rows for K - 1 .. 0 (clamp_len repeats a row's value)   far = K - 1
    DeBERTa           rows for K - 1 .. 1 - T, alike within a bucket          far = K - 1
  """

  # r_RNH, bias_NR: projected position table, and float32 biases in its rows (`distance_tables.py`)
  r_RNH: Array | None = None
  bias_NR: Array | None = None
  # u_NH, w_NH: biases of the query for content and position (r_w_bias, r_r_bias)
  u_NH: Array | None = None
  w_NH: Array | None = None
  p_RNH: Array | None = None  # the table that keys are multiplied with, in the rows of r_RNH
  segment: Segment | None = None  # see `Segment`
  # int32. Rows with -1 hold their text in reverse, so their distances change sign; then the table
  # has all of S - 1 .. 1 - S.
  direction_B: Array | None = None
  far: int = _static(0)  # static; the distance of the first row
  scale: float | None = _static(None)  # static; None is H^-0.5. T5 has 1.

  @property
  def tables(self) -> int:
    """Returns the number of tables of positions that are multiplied."""
    return sum(table is not None for table in (self.r_RNH, self.p_RNH))

  @property
  def rows(self) -> int:
    """R, of any table; 0 without one."""
    for table_RNH in (self.r_RNH, self.p_RNH):
      if table_RNH is not None:
        return table_RNH.shape[0]
    return 0 if self.bias_NR is None else self.bias_NR.shape[1]


class Operands(NamedTuple):
  """The operands of `relative_attention`, which each implementation's `attend` takes."""

  q_BTNH: Array  # queries, float32 or bfloat16
  # k_BSNH, v_BSNH: keys and values, those of the memory first
  k_BSNH: Array
  v_BSNH: Array
  mask: Mask  # the keys that each query sees
  # the terms that depend on distance or segment; None: q k^T / sqrt(H) alone
  relative: Relative | None = None
  dropout: Dropout | None = None  # of the probabilities, or None

  @property
  def scale(self) -> float:
    """The factor of all terms but the bias."""
    given = None if self.relative is None else self.relative.scale
    return self.q_BTNH.shape[-1] ** -0.5 if given is None else given

  @property
  def nearest(self) -> int | None:
    """The smallest distance that a causal mask or a table admits; None where neither sets one."""
    found, relative = [0] if self.mask.causal else [], self.relative
    if relative is not None and relative.rows:
      last = relative.far - relative.rows + 1
      found += [last] if last > 1 - self.q_BTNH.shape[1] else []
    return max(found, default=None)


def axes_of(path: Sequence[Any]) -> str:
  """Returns the axes of an operand by its path in a tree of them, the letters that end its name:
  BTNH of q_BTNH, NH of u_NH; '' of one that has none, as site."""
  tail = path[-1].name.rpartition('_')[2]
  return tail if tail.isupper() else ''


def check(x: Operands) -> None:
  """Raises ValueError where shapes disagree or a table does not reach all distances."""
  (batch, queries, heads, size), keys = x.q_BTNH.shape, x.k_BSNH.shape[1]
  mask, relative = x.mask, x.relative
  rows = 0 if relative is None else relative.rows
  sizes = {'B': batch, 'T': queries, 'S': keys, 'N': heads, 'H': size, 'R': rows, '2': 2}
  for path, array in jax.tree_util.tree_leaves_with_path(x._replace(dropout=None)):
    shape = tuple(sizes[axis] for axis in axes_of(path))
    if array.shape != shape:
      raise ValueError(f'attention: expected {path[-1].name} of shape {shape}, got {array.shape}')
  if keys < queries:
    raise ValueError(
      f'attention: expected at least as many keys as queries, memory first; got {keys} keys and '
      f'{queries} queries'
    )
  if (mask.order_q_BT is None) != (mask.order_k_BS is None):
    raise ValueError('attention: expected both order_q_BT and order_k_BS or neither, got one')
  if mask.window is not None and mask.window < 1:
    raise ValueError(f'attention: expected a window of at least 1 (itself), got {mask.window}')
  if mask.sinks and (mask.window is None or mask.sinks > keys - queries):
    raise ValueError(
      f'attention: {mask.sinks} sinks are keys of memory that a window does not hide: expected a '
      f'window and as much memory, got window={mask.window} and {keys - queries} keys of memory'
    )
  if relative is not None and relative.w_NH is not None and relative.r_RNH is None:
    raise ValueError('attention: w_NH is the bias of the position term: give r_RNH, or leave it')
  if relative is not None and rows:
    _check_reach(relative, queries, keys)


def _check_reach(relative: Relative, queries: int, keys: int) -> None:
  far, last = relative.far, relative.far - relative.rows + 1
  short = (
    f'attention: {relative.rows} rows from distance {far} down hold the distances {far} .. {last}, '
    f'but {queries} queries and {keys} keys need {keys - 1} .. '
  )
  if relative.direction_B is not None:
    if far < keys - 1 or last > 1 - keys:
      raise ValueError(f'{short}{1 - keys} where rows of the batch run backwards: lengthen it')
  elif far < keys - 1 or last > 0 or (last < 0 and last > 1 - queries):
    raise ValueError(f'{short}{1 - queries} (or .. 0, then later keys are hidden): lengthen it')
