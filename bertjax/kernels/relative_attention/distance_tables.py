"""Tables over distances: which row belongs to which distance, and the biases of T5 and ALiBi."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from bertjax.types import Array


def distances(queries: int, keys: int) -> np.ndarray:
  """All distances, furthest first: int [R] = S - 1 .. 1 - T. Tables over them have far = S - 1."""
  return np.arange(keys - 1, -queries, -1)


def span(
  table: Array, far: int, first: Array | int, width: int, direction_B: Array | None = None
) -> Array:
  """Returns rows of a table [R, ...] for the distances first, first - 1, .. first - width + 1:
  [width, ...], or [B, width, ...] with directions. Distances that the table lacks have zeros.

  Args:
    table: the row of distance d is far - d.
    first: static or traced; at most far + width.
    direction_B: +1 or -1; -1 asks for the negated distances.
  """
  pads = [(width, width)] + [(0, 0)] * (table.ndim - 1)

  def rows(table: Array, start: Array | int) -> Array:
    return jax.lax.dynamic_slice_in_dim(jnp.pad(table, pads), width + start, width)

  ahead = rows(table, far - first)
  if direction_B is None:
    return ahead
  back = rows(table[::-1], table.shape[0] - 1 - far - first)
  reverse_B = direction_B.reshape((-1,) + (1,) * table.ndim) < 0
  return jnp.where(reverse_B, back[None], ahead[None])


@jax.custom_vjp
def shift(x: Array) -> Array:
  """x [..., T, T + S] by distance -> [..., T, S] by key: out[t, s] = x[t, T - 1 - t + s].

  Column c of x belongs to the distance c less than the largest one, which the last query has to the
  first key. Read with rows that are one shorter, each next row starts one later, so the shift is a
  reshape (Transformer-XL's trick, without its padding column).
  """
  queries, width = x.shape[-2:]
  flat = x.reshape(*x.shape[:-2], queries * width)
  flat = flat[..., queries - 1 : queries - 1 + queries * (width - 1)]
  return flat.reshape(*x.shape[:-1], width - 1)[..., : width - queries]


def _unshifted(y: Array) -> Array:
  """The gradient of `shift`: y [..., T, S] -> [..., T, T + S]."""
  *rest, queries, keys = y.shape
  width = queries + keys
  y = jnp.concatenate([jnp.zeros((*rest, queries, queries - 1), y.dtype), y], -1)
  y = jnp.concatenate([y, jnp.zeros((*rest, 1, width - 1), y.dtype)], -2)
  return y.reshape(*rest, -1)[..., : queries * width].reshape(*rest, queries, width)


shift.defvjp(lambda x: (shift(x), None), lambda _, y: (_unshifted(y),))


def alibi(heads: int, distance: np.ndarray) -> np.ndarray:
  """-slope * |distance| as float32 [N, R] (Press et al. 2022). Slopes are 2^(-8 n / N) for n = 1 ..
  N; where N is no power of two, those of the power below and then every second one of twice that
  power."""
  power = 2 ** int(math.log2(heads))
  slopes = [2 ** (-8 * n / power) for n in range(1, power + 1)]
  slopes += [2 ** (-4 * n / power) for n in range(1, 2 * (heads - power), 2)]
  return -(np.asarray(slopes)[:, None] * np.abs(distance)).astype(np.float32)


def t5_buckets(
  distance: np.ndarray, buckets: int = 32, furthest: int = 128, both_ways: bool = True
) -> np.ndarray:
  """Returns the bucket of each distance, int [R]; `table_KN[buckets].T` is then a bias_NR. Exact
  below half of the buckets, logarithmic up to `furthest`, and the last one beyond (Raffel et al.
  2020). Both ways, later keys have the upper half of the buckets; one way, they have bucket 0."""
  bucket = np.zeros_like(distance)
  if both_ways:
    buckets //= 2
    bucket = np.where(distance < 0, buckets, 0)
    distance = np.abs(distance)
  else:
    distance = np.maximum(distance, 0)
  exact = buckets // 2
  # In float32 as the original computes it: a distance on a border falls on the same side.
  ratio = np.maximum(distance, 1).astype(np.float32) / np.float32(exact)
  log = np.log(ratio) / np.float32(math.log(furthest / exact)) * np.float32(buckets - exact)
  far = np.minimum(exact + log.astype(int), buckets - 1)
  return bucket + np.where(distance < exact, distance, far)


def deberta_buckets(distance: np.ndarray, buckets: int = 256, furthest: int = 512) -> np.ndarray:
  """Returns the row of DeBERTa's table of 2 x `buckets` rows for each distance, int [R]. Distances
  to half of the buckets have one each, those up to `furthest` share them by their logarithm (He et
  al. 2021, microsoft/DeBERTa, DeBERTa/deberta/da_utils.py, which holds distances to `furthest` - 1
  first). For one row of queries and one of keys, so that row 0 is of the furthest to come."""
  distance = np.clip(distance, 1 - furthest, furthest - 1)
  half = buckets // 2
  ratio = np.log(np.maximum(np.abs(distance), 1) / half) / np.log((furthest - 1) / half)
  shared = np.sign(distance) * (np.ceil(ratio * (half - 1)) + half).astype(int)
  bucket = np.where(np.abs(distance) <= half, distance, shared)
  return np.clip(bucket + buckets, 0, 2 * buckets - 1)
