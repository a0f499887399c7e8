"""The cache of a text that is written: keys and values of its columns, so that each is made once.

A cache has as many columns as the text may get. A prompt stands in its last columns, so that
prompts of several lengths end at one column; what stands before a short one is not seen.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bertjax.types import Array


class Cache(NamedTuple):
  """Keys and values of one layer, the columns of a head side by side, as products read them."""

  # key_BNSH, value_BNSH: of the text's columns
  key_BNSH: Array
  value_BNSH: Array
  # other_key_BNSH, other_value_BNSH: of another text's, for cross-attention; None without it
  other_key_BNSH: Array | None = None
  other_value_BNSH: Array | None = None


Caches = tuple[Cache, ...]  # one of each layer


class Reading(NamedTuple):
  """Inputs of all layers for new columns, in place of `block.Context`."""

  place: Array  # int32, column of the first of them
  seen_BTS: Array  # bool, the columns of the cache that each of them sees, itself among them
  bias_NTS: Array | None = None  # float32, by distance; or None
  other_seen_BTS: Array | None = None  # the columns of the other text; None without one
  # the other text, where its keys are to be made; None: the cache has them
  other_BSD: Array | None = None
  last_only: bool = False  # True for the last layer: of its output the last column alone is read


class Writing(NamedTuple):
  """A text under way; every leaf has the rows first."""

  layers: Caches
  real_BS: Array  # bool, the columns that hold tokens of the text
  place_B: Array  # int32, the next column; the same in all rows
  position_B: Array  # int32, the position of the next token in its text
  other_real_BS: Array | None = None  # bool, of another text; None without one
  tables: Mapping[str, Array] = {}  # ids of further tables, <name>_BT, of each next token, [B, 1]


def empty(rows: int, layers: int, columns: int, heads: int, size: int, dtype) -> Caches:
  """Returns the cache of nothing."""
  zeros = jnp.zeros((rows, heads, columns, size), dtype)
  return (Cache(zeros, zeros),) * layers


def heads_first(x_BTNH: Array) -> Array:
  """Returns columns as a cache has them, [B, N, T, H]."""
  return jnp.swapaxes(x_BTNH, 1, 2)


def put(old_BNSH: Array, new_BTNH: Array, place: Array) -> Array:
  """Returns the columns with new ones from `place` on."""
  new_BNTH = heads_first(new_BTNH).astype(old_BNSH.dtype)
  return jax.lax.dynamic_update_slice_in_dim(old_BNSH, new_BNTH, place, 2)


def begun(prompt_BT: Array, room: int) -> tuple[Array, Array]:
  """Returns real_BS of a prompt whose padding, 0, comes first, and the position of each column."""
  real_BT = prompt_BT > 0
  position_BT = jnp.maximum(jnp.cumsum(real_BT, 1) - 1, 0)
  return jnp.pad(real_BT, ((0, 0), (0, room))), position_BT


def before(real_BS: Array, place: Array, columns: int) -> Array:
  """Returns which columns each of so many new ones sees: itself and the real ones before it; a
  column of padding sees itself alone, so that nothing is divided by 0."""
  column_TS = jnp.arange(real_BS.shape[1])[None] - (place + jnp.arange(columns))[:, None]
  return (real_BS[:, None] & (column_TS <= 0)[None]) | (column_TS == 0)[None]
