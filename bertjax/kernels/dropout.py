"""Dropout from a counter hash: one bit pattern for every implementation, mesh and microbatching.

A kept bit is a pure function of (seed of the step, site, global row, position in the row), so it
does not depend on how rows are spread over devices, hosts or microbatches, and a kernel can
recompute in its backward pass what it drew in its forward pass. The mixing constants are the
32-bit ones of Chris Wellons' hash-prospector (lowest known bias for two multiplications); a second
word of the row key enters between the two rounds, so that two rows whose first words happen to be
close do not share a stream.
"""

import zlib
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bertjax.types import Array

_GOLDEN = 0x9E3779B9  # 2^32 / golden ratio, spreads consecutive integers


class Noise(NamedTuple):
  """The keys of one step's draws: a uint32 seed, new at each step, and global row numbers,
  uint32."""

  seed: Array
  row_B: Array


def noise_from_key(key: Array, row_B: Array) -> Noise:
  """Returns the step's PRNG key and the global row numbers int[B] as `Noise`."""
  return Noise(jax.random.bits(key, dtype=jnp.uint32), row_B.astype(jnp.uint32))


def fork(noise: Noise | None, name: str) -> Noise | None:
  """Other draws at the same sites: for a module that runs twice in a step."""
  if noise is None:
    return None
  return noise._replace(seed=mix(noise.seed, jnp.uint32(zlib.crc32(name.encode()))))


def site(path: tuple[str, ...], layer: Array | int = 0) -> Array:
  """Returns a uint32 for one use of randomness: module path and index of the scanned layer."""
  name = zlib.crc32('/'.join(path).encode())
  return jnp.uint32(name) + jnp.asarray(layer).astype(jnp.uint32) * jnp.uint32(_GOLDEN)


def mix(x: Array, key: Array | int = 0) -> Array:
  """Bijective scrambling of uint32 values; `key` is mixed in between the two rounds."""
  x ^= x >> 16
  x *= jnp.uint32(0x7FEB352D)
  x ^= key
  x ^= x >> 15
  x *= jnp.uint32(0x846CA68B)
  return x ^ (x >> 16)


def row_words(noise: Noise, site: Array) -> tuple[Array, Array]:
  """Returns the two key words of each row, uint32 [B]: the bits at an index are mix(first + index,
  second)."""
  first_B = mix(noise.row_B * jnp.uint32(_GOLDEN) + noise.seed, site)
  return first_B, mix(first_B + site, noise.seed)


def bits_at(noise: Noise, site: Array, index: Array) -> Array:
  """uint32 bits [B, ...] of every row at the indices uint32 [...] within the row."""
  first_B, second_B = row_words(noise, site)
  expand = (slice(None),) + (None,) * index.ndim
  return mix(first_B[expand] + index[None], second_B[expand])


def random_bits(noise: Noise, site: Array, shape: tuple[int, ...]) -> Array:
  """uint32 bits of `shape` [B, ...], keyed by (seed, site, row, index within the row)."""
  index = jnp.zeros(shape[1:], jnp.uint32)
  for axis, size in enumerate(shape[1:]):
    index = index * jnp.uint32(size) + jax.lax.broadcasted_iota(jnp.uint32, shape[1:], axis)
  return bits_at(noise, site, index)


def threshold(rate: float) -> Array:
  """Returns the uint32 below which random bits drop their entry."""
  return jnp.uint32(round(rate * 2**32))


def dropout(x: Array, rate: float, noise: Noise | None, site: Array) -> Array:
  """Zeroes each entry of x [B, ...] with probability `rate`, which is static, and scales the others
  by 1 / (1 - rate); None in place of noise switches it off (evaluation). `site` is from
  `site()`."""
  if noise is None or rate == 0.0:
    return x
  keep = random_bits(noise, site, x.shape) >= threshold(rate)
  return jnp.where(keep, x * (1.0 / (1.0 - rate)), 0).astype(x.dtype)


def shared_dropout(x: Array, rate: float, noise: Noise | None, site: Array) -> Array:
  """`dropout` of an array that all rows of a batch share: every device draws the same."""
  alone = noise and noise._replace(row_B=jnp.zeros(1, jnp.uint32))
  return dropout(x[None], rate, alone, site)[0]
