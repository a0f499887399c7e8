"""Output heads: the word table as an output layer, label heads on the pooled first token."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertjax.kernels.cross_entropy import Scores
from bertjax.models.layers.basic import (
  ACTIVATIONS,
  Dense,
  Init,
  Norm,
  NormKind,
  affine_inits,
  param,
)

Array = jax.Array


class WordHead(nn.Module):
  """Scores of the vocabulary at gathered positions, over the tied word table and a bias.

  Attributes:
    vocab_size: rows of the table beyond it are padding.
    transform: dense -> activation -> norm to the width of the table first (BERT); without it the
      hidden states meet the table as they are (XLM).
    norm, biases: of these; the words have a bias in any case.
  """

  vocab_size: int
  transform: bool
  activation: str
  norm_eps: float
  initializer: Init
  dtype: Any = jnp.float32
  norm: NormKind = 'layer_norm'
  biases: bool = True

  @nn.compact
  def __call__(self, h_BPD: Array, table_VE: Array) -> Scores:
    rows, width = table_VE.shape
    if self.transform:
      dense = Dense(
        (width,), ('embed', 'embed_out'), self.initializer, bias=self.biases, dtype=self.dtype,
        name='dense',
      )  # fmt: skip
      h_BPD = ACTIVATIONS[self.activation](dense(h_BPD))
      norm = Norm(self.norm_eps, self.dtype, 0.0, self.norm, self.biases, name='norm')
      h_BPD = norm(h_BPD)
    _, bias_init = affine_inits(self.initializer, width)
    bias_V = param(self, 'bias', ('vocab',), (rows,), bias_init)
    return Scores(h_BPD.astype(self.dtype), table_VE, bias_V, self.vocab_size)


def gather_positions(x_BTD: Array, position_BP: Array) -> Array:
  """x_BTD at the columns position_BP -> [B, P, D]."""
  return jnp.take_along_axis(x_BTD, position_BP[:, :, None], axis=1)
