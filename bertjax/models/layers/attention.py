"""Multi-head self-attention: projections around the attention operation."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertjax.kernels import dropout as dropout_lib
from bertjax.kernels.dropout import Noise
from bertjax.kernels.relative_attention import Dropout, Mask, relative_attention
from bertjax.models.layers.basic import Dense, Init

Array = jax.Array


class SelfAttention(nn.Module):
  """softmax(q k^T / sqrt(H)) v over the visible keys, with biases on q, k, v and out."""

  heads: int
  initializer: Init
  dropout: float
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(self, x_BTD: Array, mask: Mask, noise: Noise | None, layer: Array) -> Array:
    width = x_BTD.shape[-1]
    shape = (self.heads, width // self.heads)

    def project(name: str) -> Array:
      axes = ('embed', 'heads', 'head')
      return Dense(shape, axes, self.initializer, dtype=self.dtype, name=name)(x_BTD)

    q_BTNH, k_BTNH, v_BTNH = project('query'), project('key'), project('value')
    dropout = None
    if noise is not None and self.dropout:
      site = dropout_lib.site(self.path, layer)
      dropout = Dropout(self.dropout, noise, site)
    y_BTNH = relative_attention(q_BTNH, k_BTNH, v_BTNH, mask, dropout=dropout)
    axes = ('heads', 'head', 'embed')
    return Dense((width,), axes, self.initializer, inputs=2, dtype=self.dtype, name='out')(y_BTNH)
