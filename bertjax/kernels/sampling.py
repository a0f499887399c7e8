"""Ids drawn from the softmax of a vocabulary's scores: the inverse of its distribution function.

One uniform per position decides: the id drawn is the first one at which the cumulative probability,
in the order of the ids, exceeds it. So equal uniforms give equal ids, however the logits are
computed. `sample` holds [positions, V] where `cross_entropy` does; beyond that it walks over the
vocabulary twice, chunk by chunk: for the weight of each block of ids, then, inside the block that
the uniform falls into, for the id.
"""

import jax
import jax.numpy as jnp
import numpy as np

from bertjax.kernels import cross_entropy as ce
from bertjax.kernels.cross_entropy import Scores
from bertjax.kernels.look_up import one_of
from bertjax.types import Array


def uniform(bits: Array) -> Array:
  """uint32 bits as float32 multiples of 2^-23 in [0, 1), so that u * x < x for every x > 0."""
  return (bits >> 9).astype(jnp.float32) * jnp.float32(2.0**-23)


def sample(scores: Scores, uniform_BP: Array, temperature: float = 1.0) -> Array:
  """Draws an id per position from softmax(logits / temperature), int32 [B, P], without a gradient.

  Args:
    scores: see `Scores`; padding rows are never drawn.
    uniform_BP: float32 from `uniform`. Probabilities are exact to its 2^-23.
    temperature: static, above 0.
  """
  chunks = ce.chunks_of_a_device(uniform_BP.size, scores.table_VE.shape[0])
  if chunks:
    return chunked_sample(scores, uniform_BP, temperature, chunks)
  hidden_nE, table_VE, bias_V, uniform_n = _flat(scores, uniform_BP)
  id_V = np.arange(table_VE.shape[0])
  logits_nV = ce.flat_logits(hidden_nE, table_VE, bias_V, id_V >= scores.vocab_size)
  logits_nV = _cooled(logits_nV, temperature)
  top_n = jnp.max(logits_nV, 1)
  weight_nGK = jnp.exp(logits_nV - top_n[:, None]).reshape(len(uniform_n), ce.BLOCKS, -1)
  group_n, rest_n = _choose(jnp.sum(weight_nGK, -1), uniform_n)
  weight_nK = _of_group(weight_nGK, group_n)
  place_n = jnp.sum(jnp.cumsum(weight_nK, 1) <= rest_n[:, None], 1)
  return _ids(scores, group_n, place_n).reshape(uniform_BP.shape)


def chunked_sample(scores: Scores, uniform_BP: Array, temperature: float, chunks: int) -> Array:
  """`sample` in so many chunks of the vocabulary, or as many as its tiles admit."""
  rows = scores.table_VE.shape[0]
  tiles = ce.chunk_tiles(rows, chunks)
  each = jnp.arange(ce.chunk_count(rows, tiles))
  hidden_nE, table_VE, bias_V, uniform_n = _flat(scores, uniform_BP)

  def logits_of(at: Array) -> Array:
    part = ce.chunk(tiles, scores.vocab_size, table_VE, bias_V, at)
    left_out_K = part.padding_K | part.again_K
    logits_nK = ce.flat_logits(hidden_nE, part.table_KE, part.bias_K, left_out_K)
    return _cooled(logits_nK, temperature)

  def weigh(running, at):
    """Returns the running maximum, and each block's sum of exponentials below it."""
    top_n, sum_nG = running
    logits_nK = logits_of(at)
    new_top_n = jnp.maximum(top_n, jnp.max(logits_nK, 1))
    weight_nK = jnp.exp(logits_nK - new_top_n[:, None])
    sum_nG = sum_nG * jnp.exp(top_n - new_top_n)[:, None]
    return (new_top_n, sum_nG + jnp.sum(_in_groups(weight_nK), -1)), None

  lowest_n = jnp.full(uniform_n.shape, jnp.finfo(jnp.float32).min)
  start = (lowest_n, jnp.zeros((len(uniform_n), ce.BLOCKS)))
  (top_n, sum_nG), _ = jax.lax.scan(weigh, start, each)
  group_n, rest_n = _choose(sum_nG, uniform_n)

  def walk(running, at):
    """Returns the weight of the chosen block up to here, and how many of its ids do not reach the
    rest."""
    until_n, place_n = running
    logits_nK = _of_group(_in_groups(logits_of(at)), group_n)
    until_nK = until_n[:, None] + jnp.cumsum(jnp.exp(logits_nK - top_n[:, None]), 1)
    place_n += jnp.sum((until_nK <= rest_n[:, None]) & (logits_nK > -jnp.inf), 1)
    return (until_nK[:, -1], place_n), None

  start = (jnp.zeros_like(uniform_n), jnp.zeros(uniform_n.shape, jnp.int32))
  (_, place_n), _ = jax.lax.scan(walk, start, each)
  return _ids(scores, group_n, place_n).reshape(uniform_BP.shape)


def _flat(scores: Scores, uniform_BP: Array):
  """(hidden_nE, table_VE, bias_V, uniform_n), cut off from the gradient."""
  parts = (scores.hidden_BPE, scores.table_VE, scores.bias_V)
  hidden_BPE, table_VE, bias_V = jax.tree.map(jax.lax.stop_gradient, parts)
  hidden_nE = hidden_BPE.reshape(-1, hidden_BPE.shape[-1])
  return hidden_nE, table_VE, bias_V, uniform_BP.reshape(-1)


def _cooled(logits_nK: Array, temperature: float) -> Array:
  return logits_nK if temperature == 1.0 else logits_nK / temperature


def _in_groups(value_nK: Array) -> Array:
  """[n, K] of a chunk as [n, blocks of the table, its rows of each]."""
  return value_nK.reshape(len(value_nK), ce.BLOCKS, -1)


def _of_group(value_nGK: Array, group_n: Array) -> Array:
  return one_of(value_nGK, group_n[:, None], 1)


def _choose(sum_nG: Array, uniform_n: Array) -> tuple[Array, Array]:
  """Returns the block that the uniform falls into, and the weight in it before that point."""
  until_nG = jnp.cumsum(sum_nG, 1)
  point_n = uniform_n * until_nG[:, -1]
  group_n = jnp.minimum(jnp.sum(until_nG <= point_n[:, None], 1), ce.BLOCKS - 1)
  before_nG = until_nG - sum_nG
  return group_n, point_n - one_of(before_nG, group_n, 1)


def _ids(scores: Scores, group_n: Array, place_n: Array) -> Array:
  """Ids of places in blocks; what rounding carries beyond the end of a block stays in it."""
  size = scores.table_VE.shape[0] // ce.BLOCKS
  id_n = group_n * size + jnp.minimum(place_n, size - 1)
  return jnp.minimum(id_n, scores.vocab_size - 1).astype(jnp.int32)
