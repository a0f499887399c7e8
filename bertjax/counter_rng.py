"""Counter-based random numbers in NumPy: every draw is a pure function of a key and a counter.

A key is one uint64. `fold(key, x)` makes a new key from a key and an integer, and the draw at
counter x of a key is the same operation: `mix(key + (x + 1) * GOLDEN)`, that is output x of a
SplitMix64 generator whose state starts at `key` (Steele, Lea, Flood, "Fast splittable pseudorandom
number generators", OOPSLA 2014; the finaliser is variant 13 of Stafford's search). So no draw
depends on how many were made before it, on the batch it is made in, or on the thread that makes it,
and a whole batch is drawn in a few vector operations.

An example's key is `fold(fold(root(seed, 'corrupt'), epoch), example)`; each use of randomness
takes its own site below it, `fold(key, SITE)`, and within the site the counter is the position.
"""

import hashlib

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLY_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLY_2 = np.uint64(0x94D049BB133111EB)
_SHIFT_1, _SHIFT_2, _SHIFT_3 = np.uint64(30), np.uint64(27), np.uint64(31)
_ONE, _HALF = np.uint64(1), np.uint64(32)
# Of the Feistel network. Four do for large sizes (Luby and Rackoff 1988); below a hundred, the
# places of two neighbours are visibly dependent with fewer than eight.
ROUNDS = 8


def root(seed: int, purpose: str) -> np.ndarray:
  """Returns the key of a seed (modulo 2**64) for one purpose, uint64 [1]."""
  name = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8], 'little')
  return fold(fold(np.zeros(1, np.uint64), name), seed % 2**64)


def fold(key: np.ndarray, data: np.ndarray | int) -> np.ndarray:
  """Derives keys, or draws 64 bits: equal (key, data) give equal bits, all others unrelated ones.
  Returns uint64 array of the broadcast shape, of rank 1 at least.

  Args:
    key: uint64 array.
    data: integers >= 0 of any integer dtype, broadcast against key; a single one counts as [1].
  """
  state = np.atleast_1d(np.asarray(data)).astype(np.uint64)
  state = key + (state + _ONE) * GOLDEN
  # In place from here on: the temporaries of a big batch would cost more than the arithmetic.
  state ^= state >> _SHIFT_1
  state *= _MULTIPLY_1
  state ^= state >> _SHIFT_2
  state *= _MULTIPLY_2
  state ^= state >> _SHIFT_3
  return state


def uniform(bits: np.ndarray) -> np.ndarray:
  """Turns uint64 bits into float64 in [0, 1), from the upper 53 of them."""
  return (bits >> np.uint64(11)) * (1.0 / (1 << 53))


def below(bits: np.ndarray, bound: np.ndarray | int) -> np.ndarray:
  """Turns uint64 bits into int64 uniform on 0 .. bound - 1.

  Args:
    bits: uint64 array.
    bound: integers from 1 to 2**32, broadcast against bits. The bias is at most bound / 2**32.
  """
  return (((bits >> _HALF) * np.asarray(bound).astype(np.uint64)) >> _HALF).astype(np.int64)


def coin_flips(key_n: np.ndarray, flips_n: np.ndarray) -> np.ndarray:
  """Draws Binomial(flips, 1/2) exactly, as the number of ones among that many bits. Returns int64
  [n], from 0 to flips.

  Args:
    key_n: uint64 [n], one key per draw, used for nothing else.
    flips_n: int64 [n], how many flips, >= 0.
  """
  heads_n = np.zeros(len(flips_n), np.int64)
  live_n, left_n, word = np.flatnonzero(flips_n), flips_n[flips_n > 0], 0
  while live_n.size:
    bits = fold(key_n[live_n], word)
    unused = (64 - np.minimum(left_n, 64)).astype(np.uint64)
    heads_n[live_n] += np.bitwise_count(bits >> unused)
    live_n, left_n, word = live_n[left_n > 64], left_n[left_n > 64] - 64, word + 1
  return heads_n


def permute(key_n: np.ndarray, index_n: np.ndarray, size: int) -> np.ndarray:
  """Maps indices through a random permutation of 0 .. size - 1, one permutation per key. A Feistel
  network on the next even number of bits, applied again to what falls outside (Black and Rogaway,
  "Ciphers with arbitrary finite domains", CT-RSA 2002). Returns int64 [n].

  Args:
    key_n: uint64 [n]; entries with equal keys share a permutation.
    index_n: int64 [n], from 0 to size - 1.
    size: at least 1.
  """
  half = np.uint64(max((size - 1).bit_length() + 1, 2) // 2)
  low = (_ONE << half) - _ONE
  out_n, open_n = index_n.astype(np.uint64), np.arange(len(index_n))
  round_key_rn = [fold(key_n, turn) for turn in range(ROUNDS)]
  while open_n.size:
    left_n, right_n = out_n[open_n] >> half, out_n[open_n] & low
    for key in round_key_rn:
      left_n, right_n = right_n, left_n ^ (fold(key[open_n], right_n) & low)
    out_n[open_n] = left_n << half | right_n
    open_n = open_n[out_n[open_n] >= size]
  return out_n.astype(np.int64)
