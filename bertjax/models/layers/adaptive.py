"""Word tables that shrink for rare words: adaptive inputs, and the adaptive softmax tied to them.

Transformer-XL's AdaptiveEmbedding and ProjectedAdaptiveLogSoftmax (kimiyoung/transformer-xl,
pytorch). Cluster i of the vocabulary has vectors of width D / div_val^i and a projection to D; with
div_val 1 there is no projection. The output has the inputs' tables, and their projections but the
first, which is its own.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertjax.errors import UserError
from bertjax.kernels.adaptive_softmax import AdaptiveScores
from bertjax.kernels.cross_entropy import Scores
from bertjax.kernels.look_up import look_up
from bertjax.models.layers.basic import Init, padded_rows, param, word_table
from bertjax.types import Array


class AdaptiveWords(nn.Module):
  """Call `embed` of ids and `scores` of hidden states. `cutoffs` are the first ids of the clusters,
  each narrower than the one before by the factor div_val; ids are ordered by frequency.
  projection_std is that of the projections at the start (proj_init_std)."""

  vocab_size: int
  width: int
  cutoffs: tuple[int, ...]
  div_val: int
  initializer: Init
  projection_std: float
  dtype: Any = jnp.float32

  def setup(self):
    self.bounds = (0, *self.cutoffs, self.vocab_size)
    widths = [self.width // self.div_val**i for i in range(len(self.cutoffs) + 1)]
    zeros, count = jax.nn.initializers.zeros, len(self.cutoffs)
    self.tables, self.biases, self.projections = [], [], []
    for i, width in enumerate(widths):
      rows = padded_rows(self._size(i))
      table = word_table(self, f'word_{i}', self._size(i), width, self.initializer)
      self.tables = [*self.tables, table]
      self.biases = [*self.biases, param(self, f'bias_{i}', ('vocab',), (rows,), zeros)]
      self.projections = [*self.projections, self._projection(f'projection_{i}', width)]
    self.head_projection = self._projection('head_projection', widths[0])
    self.cluster = param(self, 'cluster', ('label', 'embed'), (count, widths[0]), self.initializer)
    self.cluster_bias = param(self, 'cluster_bias', ('label',), (count,), zeros)

  def _size(self, i: int) -> int:
    return self.bounds[i + 1] - self.bounds[i]

  def _projection(self, name: str, width: int) -> Array | None:
    if self.div_val == 1:
      return None
    init = jax.nn.initializers.normal(self.projection_std)
    return param(self, name, ('embed_out', 'embed'), (width, self.width), init)

  def embed(self, token_BT: Array) -> Array:
    """[B, T, D], not scaled."""
    x_BTD = jnp.zeros((), self.dtype)
    for i, (table, projection) in enumerate(zip(self.tables, self.projections, strict=True)):
      inside = (token_BT >= self.bounds[i]) & (token_BT < self.bounds[i + 1])
      x = look_up(table.astype(self.dtype), jnp.where(inside, token_BT - self.bounds[i], 0))
      x = x if projection is None else x @ projection.astype(self.dtype)
      x_BTD = jnp.where(inside[..., None], x, x_BTD)
    return x_BTD

  def scores(self, h_BPD: Array) -> AdaptiveScores:
    """Returns the factors of the logits at some positions: of the head and of each tail."""

    def down(projection: Array | None) -> Array:
      h = h_BPD.astype(self.dtype)
      return h if projection is None else h @ projection.astype(self.dtype).T

    # The clusters follow the words of the head, and the padding follows both.
    words, count = self.cutoffs[0], len(self.cutoffs)
    rows = padded_rows(words + count)
    pad = lambda x: jnp.pad(x, [(0, rows - len(x))] + [(0, 0)] * (x.ndim - 1))
    table = pad(jnp.concatenate([self.tables[0][:words], self.cluster]))
    bias = pad(jnp.concatenate([self.biases[0][:words], self.cluster_bias]))
    head = Scores(down(self.head_projection), table, bias, words + count)
    tails = [
      Scores(down(self.projections[i]), self.tables[i], self.biases[i], self._size(i))
      for i in range(1, count + 1)
    ]
    return AdaptiveScores(head, tuple(tails), self.bounds[1:])


def check(vocab_size: int, width: int, cutoffs: tuple[int, ...], div_val: int) -> None:
  """Raises UserError for cutoffs that do not ascend below the vocabulary's size, and a width that
  does not divide."""
  if list(cutoffs) != sorted({*cutoffs}) or not (0 < cutoffs[0] and cutoffs[-1] < vocab_size):
    raise UserError(
      f'config.model.cutoffs must ascend between 0 and the {vocab_size} words of the vocabulary, '
      f'got {cutoffs}; () is a plain softmax'
    )
  if div_val < 1 or width % div_val ** len(cutoffs):
    raise UserError(
      f'config.model.div_val={div_val} to the power of {len(cutoffs)} clusters must divide '
      f'config.model.width={width}'
    )
