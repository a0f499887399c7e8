"""A softmax in two levels: frequent words and clusters of rare ones, then the words of a cluster.

Grave et al. 2017, as Transformer-XL has it (pytorch/utils/proj_adaptive_softmax.py). Ids are
ordered by frequency: those below the first cutoff are entries of the head, beside one per cluster.

  log p(word) = head(word)                            for a word of the head
              = head(cluster) + tail_cluster(word)    otherwise

The words of a cluster are scored at the positions whose target is one of them, and nowhere else:
positions are sorted by whether it is, and a loop with as many turns as that takes goes over them in
groups of equal size. So rare words cost what they should, shapes are static, and a group holds no
more than CHUNK_LOGITS scores.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from bertjax.kernels import mesh
from bertjax.kernels.cross_entropy import (
  CHUNK_LOGITS,
  Scores,
  cross_entropy,
  flat_logits,
  logits,
  product_slopes,
  score,
)
from bertjax.types import Array

# At least, where there are positions enough: less than a group is computed in vain.
GROUPS = 16


class AdaptiveScores(NamedTuple):
  """The factors of the logits at some positions: `head` scores the words below the first cutoff,
  then one entry per cluster, from the last cluster to the first as in the original; `tails` the
  words of each cluster; the static `bounds` are the first word of each cluster, and the number of
  words."""

  head: Scores
  tails: tuple[Scores, ...]
  bounds: tuple[int, ...]

  def entry(self, cluster: int) -> int:
    """Returns the head's entry of a cluster."""
    return self.head.vocab_size - 1 - cluster


def adaptive_cross_entropy(scores: AdaptiveScores, target_BP: Array) -> tuple[Array, Array]:
  """-log p of the targets, and 1.0 where each level scores nothing above them; float32 [B, P]."""
  head_BP, inside = target_BP, []
  for cluster in range(len(scores.tails)):
    first, last = scores.bounds[cluster : cluster + 2]
    inside.append((target_BP >= first) & (target_BP < last))
    head_BP = jnp.where(inside[-1], scores.entry(cluster), head_BP)
  nll_BP, right_BP, _ = cross_entropy(scores.head, head_BP)
  for cluster, tail in enumerate(scores.tails):
    place_BP = jnp.where(inside[cluster], target_BP - scores.bounds[cluster], 0)
    tail_nll_BP, tail_right_BP = inside_cross_entropy(tail, place_BP, inside[cluster])
    nll_BP += tail_nll_BP
    right_BP *= tail_right_BP
  return nll_BP, right_BP


def inside_cross_entropy(scores: Scores, target_BP: Array, inside_BP: Array) -> tuple[Array, Array]:
  """Returns nll_BP and right_BP of `cross_entropy` where `inside_BP`, at the cost of those
  positions; 0 and 1.0 elsewhere. On a mesh (`jax.set_mesh`) each device sorts its own rows."""
  open_axes = mesh.sizes()
  rows = tuple(axis for axis in mesh.ROWS if open_axes.get(axis, 1) > 1)
  size = scores.vocab_size

  def local(hidden_BPE, table_VE, bias_V, target_BP, inside_BP):
    group = group_size(target_BP.size, table_VE.shape[0])
    flat = hidden_BPE.reshape(-1, hidden_BPE.shape[-1]), table_VE, bias_V
    found: Any = _inside(group, size, *flat, target_BP.reshape(-1), inside_BP.reshape(-1))
    return tuple(x_n.reshape(target_BP.shape) for x_n in found)

  if rows:
    split, whole = PartitionSpec(rows), PartitionSpec()
    # A loop of as many turns as a device needs does not say over which axes its results vary.
    specs = (split, whole, whole, split, split)
    local = jax.shard_map(
      local, in_specs=specs, out_specs=(split, split), axis_names=set(open_axes), check_vma=False
    )
  return local(scores.hidden_BPE, scores.table_VE, scores.bias_V, target_BP, inside_BP)


def group_size(positions: int, words: int) -> int:
  """Returns the number of positions scored at a time: a multiple of 8."""
  most = min(positions // GROUPS, CHUNK_LOGITS // words)
  return max(8, most // 8 * 8)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _inside(group, vocab_size, hidden_nE, table_VE, bias_V, target_n, inside_n):
  return _forward(group, vocab_size, hidden_nE, table_VE, bias_V, target_n, inside_n)[0]


def _sorted(group, inside_n) -> tuple[Array, Array]:
  """Returns the positions in whole groups, those inside first; and how many groups have any."""
  n = len(inside_n)
  order_n = jnp.argsort(~inside_n, stable=True).astype(jnp.int32)
  order_m = jnp.pad(order_n, (0, -n % group), constant_values=n)
  return order_m, (jnp.sum(inside_n) + group - 1) // group


def _group(group, vocab_size, order_m, at, hidden_nE, table_VE, bias_V, target_n):
  """Returns the positions of a group, its hidden states, targets and logits."""
  at_g = jax.lax.dynamic_slice_in_dim(order_m, at * group, group)
  take = functools.partial(jnp.take, indices=at_g, axis=0, mode='fill', fill_value=0)
  hidden_gE, padding_V = take(hidden_nE), np.arange(len(table_VE)) >= vocab_size
  return at_g, hidden_gE, take(target_n), flat_logits(hidden_gE, table_VE, bias_V, padding_V)


def _forward(group, vocab_size, hidden_nE, table_VE, bias_V, target_n, inside_n):
  operands = (hidden_nE, table_VE, bias_V, target_n)
  order_m, groups = _sorted(group, inside_n)

  def body(at, found):
    at_g, _, target_g, logits_gV = _group(group, vocab_size, order_m, at, *operands)
    return [
      x_n.at[at_g].set(x_g, mode='drop')
      for x_n, x_g in zip(found, score(logits_gV, target_g)[:2], strict=True)
    ]

  nll_n, right_n = jax.lax.fori_loop(0, groups, body, [jnp.zeros(len(target_n))] * 2)
  # The last group has positions that are outside.
  found = jnp.where(inside_n, nll_n, 0.0), jnp.where(inside_n, right_n, 1.0)
  return found, (*operands, inside_n, order_m, groups)


def _backward(group, vocab_size, kept, cotangents):
  """(softmax - one hot) * cotangent, group by group, against both factors."""
  *operands, inside_n, order_m, groups = kept
  hidden_nE, table_VE, bias_V, target_n = operands
  cotangent_n = jnp.where(inside_n, cotangents[0], 0.0)

  def body(at, sums):
    d_hidden_nE, d_table_VE, d_bias_V = sums
    at_g, hidden_gE, target_g, logits_gV = _group(group, vocab_size, order_m, at, *operands)
    hot_gV = target_g[:, None] == jnp.arange(len(table_VE))[None]
    cotangent_g = jnp.take(cotangent_n, at_g, mode='fill', fill_value=0.0)
    d_gV = (jax.nn.softmax(logits_gV) - hot_gV) * cotangent_g[:, None]
    d_hidden_gE, d_own_VE = product_slopes((hidden_gE, table_VE), d_gV)
    d_hidden_nE = d_hidden_nE.at[at_g].set(d_hidden_gE, mode='drop')
    return d_hidden_nE, d_table_VE + d_own_VE, d_bias_V + jnp.sum(d_gV, 0)

  start = jnp.zeros_like(hidden_nE), jnp.zeros_like(table_VE), jnp.zeros_like(bias_V)
  none = (np.zeros(target_n.shape, jax.dtypes.float0), np.zeros(inside_n.shape, jax.dtypes.float0))
  return *jax.lax.fori_loop(0, groups, body, start), *none


_inside.defvjp(_forward, _backward)


def log_probabilities(scores: AdaptiveScores) -> Array:
  """float32 [B, P, V] of all words, in the order of their ids."""
  head_BPV = jax.nn.log_softmax(logits(scores.head))
  parts = [head_BPV[..., : scores.bounds[0]]]
  for cluster, tail in enumerate(scores.tails):
    tail_BPV = jax.nn.log_softmax(logits(tail))[..., : tail.vocab_size]
    parts.append(head_BPV[..., scores.entry(cluster), None] + tail_BPV)
  return jnp.concatenate(parts, -1)
