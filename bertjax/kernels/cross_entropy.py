"""Cross-entropy over a vocabulary, whose logits are the largest array of a masked-LM step.

Two ways with one value and one gradient. The plain one holds [positions, V]. The chunked one walks
over the vocabulary twice: forward for the log-normaliser, backward once more for the gradients, so
that it holds one chunk of logits at a time. `cross_entropy` takes it where a device would hold more
than PLAIN_LOGITS entries of the plain ones: what all of them hold together says nothing of memory.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bertjax.kernels import mesh
from bertjax.kernels.look_up import one_of
from bertjax.types import Array

PLAIN_LOGITS = 1 << 28  # 1 GiB of float32, of one device
CHUNK_LOGITS = 1 << 25  # what the chunked way holds at a time
# Chunks are cut inside this many blocks of rows, so that a table sharded over as many devices, or
# a divisor of them, stays where it is.
BLOCKS = 16
TILE = 8  # rows of a tile of a TPU's float32: what is cut between them is not laid out anew
DIVIDE = ('data', 'fsdp', 'tensor')  # axes of the mesh that divide logits: rows, and the words


class Scores(NamedTuple):
  """The factors of the logits at some positions, hidden_BPE table_VE^T + bias_V: hidden states in
  the compute dtype, a float32 table padded to a multiple of 128 rows, and the static vocab_size,
  from which on rows are padding with logit -inf."""

  hidden_BPE: Array
  table_VE: Array
  bias_V: Array
  vocab_size: int


def logits(scores: Scores) -> Array:
  """float32 [B, P, V]."""
  width, rows = scores.hidden_BPE.shape[-1], scores.table_VE.shape[0]
  flat_nE = scores.hidden_BPE.reshape(-1, width)
  padding_V = np.arange(rows) >= scores.vocab_size
  flat_nV = flat_logits(flat_nE, scores.table_VE, scores.bias_V, padding_V)
  return flat_nV.reshape(scores.hidden_BPE.shape[:-1] + (rows,))


def score(logits: Array, label: Array) -> tuple[Array, Array, Array]:
  """Scores labels, int [...], with logits, float32 [..., V].

  Compares with the maximum instead of calling argmax, which is 60 times slower on a CPU.

  Returns -log softmax(logits)[label]; 1.0 where no class scores above the label, without a
  gradient; and log Z, the logarithm of the sum of exp(logits), which a z-loss draws to 0.
  """
  picked, log_z = one_of(logits, label, -1), jax.nn.logsumexp(logits, axis=-1)
  return log_z - picked, (picked >= jnp.max(logits, axis=-1)).astype(jnp.float32), log_z


def cross_entropy(scores: Scores, target_BP: Array) -> tuple[Array, Array, Array]:
  """`score` of the logits, which are held in full where they are few: float32 [B, P] each."""
  chunks = chunks_of_a_device(target_BP.size, scores.table_VE.shape[0])
  if chunks:
    return chunked_cross_entropy(scores, target_BP, chunks)
  return score(logits(scores), target_BP)


def chunks_of_a_device(positions: int, rows: int) -> int:
  """Returns the chunks in which a device walks over its logits; 0 where it holds them in full."""
  size = positions * rows // mesh.ways(DIVIDE)
  return -(-size // CHUNK_LOGITS) if size > PLAIN_LOGITS else 0


def chunked_cross_entropy(
  scores: Scores, target_BP: Array, chunks: int
) -> tuple[Array, Array, Array]:
  """`cross_entropy` in so many chunks of the vocabulary, or as many as its tiles admit."""
  rows, width = scores.table_VE.shape
  found: Any = _chunked(
    chunk_tiles(rows, chunks),
    scores.vocab_size,
    scores.hidden_BPE.reshape(-1, width),
    scores.table_VE,
    scores.bias_V,
    target_BP.reshape(-1),
  )
  nll_BP, right_BP, log_z_BP = (x_n.reshape(target_BP.shape) for x_n in found)
  return nll_BP, right_BP, log_z_BP


def chunk_tiles(rows: int, chunks: int) -> int:
  """Returns the number of tiles per block in a chunk, if so many chunks cover all rows."""
  return -(-rows // (BLOCKS * TILE * chunks))


def chunk_count(rows: int, tiles: int) -> int:
  """Returns the number of chunks that cover all rows with so many tiles of each block."""
  return -(-rows // (BLOCKS * TILE * tiles))


def flat_logits(hidden_nE: Array, table_VE: Array, bias_V: Array, padding_V: Any) -> Array:
  """float32 [n, V]; -inf where padding_V."""
  product_nV = _product(hidden_nE, table_VE)
  return jnp.where(padding_V[None], -jnp.inf, product_nV + bias_V[None])


@jax.custom_vjp
def _product(hidden_nE: Array, table_VE: Array) -> Array:
  """float32 [n, V]; its products, and those of its gradient, are of the dtype of the hidden
  states."""
  return _dot(hidden_nE, table_VE.astype(hidden_nE.dtype), 1, 1)


def _dot(a: Array, b: Array, axis_a: int, axis_b: int) -> Array:
  axes = (((axis_a,), (axis_b,)), ((), ()))
  return jax.lax.dot_general(a, b, axes, preferred_element_type=jnp.float32)


def product_slopes(kept: tuple[Array, Array], d_nV: Array) -> tuple[Array, Array]:
  """Returns the gradients of both factors of the logits, [n, E] and [V, E], from theirs."""
  hidden_nE, table_VE = kept
  dtype = hidden_nE.dtype
  low_nV = d_nV.astype(dtype)
  d_hidden_nE = _dot(low_nV, table_VE.astype(dtype), 1, 0)
  return d_hidden_nE.astype(dtype), _dot(low_nV, hidden_nE, 0, 0).astype(table_VE.dtype)


_product.defvjp(lambda hidden, table: (_product(hidden, table), (hidden, table)), product_slopes)


class Chunk(NamedTuple):
  """K rows of a table, some of each block, with their biases and int32 ids. padding_K: rows that
  are no word's. again_K: rows of an earlier chunk, for the last one begins so early that all are as
  long. first: the chunk's first tile of each block."""

  table_KE: Array
  bias_K: Array
  id_K: Array
  padding_K: Array
  again_K: Array
  first: Array


def chunk(tiles: int, vocab_size: int, table_VE: Array, bias_V: Array, at: Array) -> Chunk:
  """Returns the chunk number `at` of those that have so many tiles of each block."""
  rows, width = table_VE.shape
  first = jnp.minimum(at * tiles, rows // (BLOCKS * TILE) - tiles)
  cut = lambda x_GTt: jax.lax.dynamic_slice_in_dim(x_GTt, first, tiles, 1)
  table_KE = cut(table_VE.reshape(BLOCKS, -1, TILE, width)).reshape(-1, width)
  bias_K = cut(bias_V.reshape(BLOCKS, -1, TILE)).reshape(-1)
  place_K = jnp.tile(first * TILE + jnp.arange(tiles * TILE), BLOCKS)
  id_K = jnp.repeat(jnp.arange(BLOCKS), tiles * TILE) * (rows // BLOCKS) + place_K
  return Chunk(table_KE, bias_K, id_K, id_K >= vocab_size, place_K < at * tiles * TILE, first)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _chunked(tiles, vocab_size, hidden_nE, table_VE, bias_V, target_n):
  return _forward(tiles, vocab_size, hidden_nE, table_VE, bias_V, target_n)[0]


def _forward(tiles, vocab_size, hidden_nE, table_VE, bias_V, target_n):
  """First pass: the running maximum, the sum of exponentials below it and the target's logit."""

  def body(running, at):
    top_n, sum_n, picked_n = running
    part = chunk(tiles, vocab_size, table_VE, bias_V, at)
    left_out_K = part.padding_K | part.again_K
    logits_nK = flat_logits(hidden_nE, part.table_KE, part.bias_K, left_out_K)
    # A chunk of padding alone has no maximum, and -inf - -inf is no number.
    new_top_n = jnp.maximum(top_n, jnp.max(logits_nK, 1))
    shown_n = jnp.sum(jnp.exp(logits_nK - new_top_n[:, None]), 1)
    sum_n = sum_n * jnp.exp(top_n - new_top_n) + shown_n
    here_nK = (target_n[:, None] == part.id_K[None]) & ~part.again_K[None]
    picked_n += jnp.sum(jnp.where(here_nK, logits_nK, 0.0), 1)
    return (new_top_n, sum_n, picked_n), None

  lowest_n = jnp.full(target_n.shape, jnp.finfo(jnp.float32).min)
  start = (lowest_n, jnp.zeros_like(lowest_n), jnp.zeros_like(lowest_n))
  chunks = jnp.arange(chunk_count(len(table_VE), tiles))
  (top_n, sum_n, picked_n), _ = jax.lax.scan(body, start, chunks)
  right_n = (picked_n >= top_n).astype(jnp.float32)
  kept = (hidden_nE, table_VE, bias_V, target_n, top_n, sum_n)
  log_sum_n = jnp.log(sum_n)
  return (top_n - picked_n + log_sum_n, right_n, top_n + log_sum_n), kept


def _backward(tiles, vocab_size, kept, cotangents):
  """Second pass: (softmax - one hot) * cotangent of the loss + softmax * that of log Z, chunk by
  chunk, against both factors."""
  hidden_nE, table_VE, bias_V, target_n, top_n, sum_n = kept
  cotangent_n, _, cotangent_z_n = cotangents
  dtype = hidden_nE.dtype
  rows, width = table_VE.shape

  def body(running, at):
    d_hidden_nE, d_table, d_bias = running
    part = chunk(tiles, vocab_size, table_VE, bias_V, at)
    logits_nK = flat_logits(hidden_nE, part.table_KE, part.bias_K, part.padding_K)
    share_nK = jnp.exp(logits_nK - top_n[:, None]) / sum_n[:, None]
    d_nK = (share_nK - (target_n[:, None] == part.id_K[None])) * cotangent_n[:, None]
    d_nK += share_nK * cotangent_z_n[:, None]
    low_nK = d_nK.astype(dtype)
    # Sums have each row once; a row's own gradient is the same the second time.
    new_KE = jnp.where(part.again_K[:, None], 0.0, part.table_KE).astype(dtype)
    d_hidden_nE += _dot(low_nK, new_KE, 1, 0)
    d_table_KE = _dot(low_nK, hidden_nE, 0, 0)
    put = lambda whole, own: jax.lax.dynamic_update_slice_in_dim(
      whole, own.reshape(BLOCKS, tiles, *whole.shape[2:]), part.first, 1
    )
    d_table = put(d_table, d_table_KE)
    d_bias = put(d_bias, jnp.sum(d_nK, 0))
    return (d_hidden_nE, d_table, d_bias), None

  start = (
    jnp.zeros(hidden_nE.shape, jnp.float32),
    jnp.zeros((BLOCKS, rows // (BLOCKS * TILE), TILE, width), jnp.float32),
    jnp.zeros((BLOCKS, rows // (BLOCKS * TILE), TILE), jnp.float32),
  )
  chunks = jnp.arange(chunk_count(rows, tiles))
  (d_hidden_nE, d_table, d_bias), _ = jax.lax.scan(body, start, chunks)
  d_target_n = np.zeros(target_n.shape, jax.dtypes.float0)
  return d_hidden_nE.astype(dtype), d_table.reshape(rows, width), d_bias.reshape(rows), d_target_n


_chunked.defvjp(_forward, _backward)
