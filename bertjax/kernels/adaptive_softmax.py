"""A softmax in two levels: frequent words and clusters of rare ones, then the words of a cluster.

Grave et al. 2017, as Transformer-XL has it (pytorch/utils/proj_adaptive_softmax.py). Ids are
ordered by frequency: those below the first cutoff are entries of the head, beside one per cluster.

  log p(word) = head(word)                            for a word of the head
              = head(cluster) + tail_cluster(word)    otherwise

Every cluster is computed at every position, since shapes are static: the order of ids decides what
is learned, not what it costs.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bertjax.kernels.cross_entropy import Scores, cross_entropy, logits

Array = jax.Array


class AdaptiveScores(NamedTuple):
  """What the probabilities of some positions are made of.

  Attributes:
    head: of the words below the first cutoff, and then one entry per cluster. The first cluster has
      the last one: the original counts them from the end.
    tails: of the words of each cluster.
    bounds: static; where each cluster begins, and the number of words.
  """

  head: Scores
  tails: tuple[Scores, ...]
  bounds: tuple[int, ...]

  def entry(self, cluster: int) -> int:
    """The head's entry of a cluster."""
    return self.head.vocab_size - 1 - cluster


def adaptive_cross_entropy(scores: AdaptiveScores, target_BP: Array) -> tuple[Array, Array]:
  """-log p of the targets, and 1.0 where each level scores nothing above them; float32 [B, P]."""
  head_BP, inside = target_BP, []
  for cluster in range(len(scores.tails)):
    first, last = scores.bounds[cluster : cluster + 2]
    inside.append((target_BP >= first) & (target_BP < last))
    head_BP = jnp.where(inside[-1], scores.entry(cluster), head_BP)
  nll_BP, right_BP = cross_entropy(scores.head, head_BP)
  for cluster, tail in enumerate(scores.tails):
    place_BP = jnp.where(inside[cluster], target_BP - scores.bounds[cluster], 0)
    tail_nll_BP, tail_right_BP = cross_entropy(tail, place_BP)
    nll_BP += jnp.where(inside[cluster], tail_nll_BP, 0.0)
    right_BP *= jnp.where(inside[cluster], tail_right_BP, 1.0)
  return nll_BP, right_BP


def log_probabilities(scores: AdaptiveScores) -> Array:
  """float32 [B, P, V] of all words, in the order of their ids."""
  head_BPV = jax.nn.log_softmax(logits(scores.head))
  parts = [head_BPV[..., : scores.bounds[0]]]
  for cluster, tail in enumerate(scores.tails):
    tail_BPV = jax.nn.log_softmax(logits(tail))[..., : tail.vocab_size]
    parts.append(head_BPV[..., scores.entry(cluster), None] + tail_BPV)
  return jnp.concatenate(parts, -1)
