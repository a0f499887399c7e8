"""The post-LN transformer encoder, scanned over its layers."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertjax.kernels.dropout import Noise
from bertjax.kernels.relative_attention import Mask
from bertjax.models.attention import SelfAttention
from bertjax.models.layers import ACTIVATIONS, Dense, Dropout, Init, Norm

Array = jax.Array


class Layer(nn.Module):
  """Attention and feed-forward, each followed by dropout, residual and norm (Vaswani et al.
  2017)."""

  heads: int
  ffn: int
  activation: str
  norm_eps: float
  dropout: float
  attention_dropout: float
  initializer: Init
  hidden: bool  # also return the layer's output, for `predict`
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(self, x_BTD: Array, mask: Mask, noise: Noise | None, layer: Array):
    width = x_BTD.shape[-1]
    attention = SelfAttention(
      self.heads, self.initializer, self.attention_dropout, self.dtype, name='attention'
    )
    y_BTD = attention(x_BTD, mask, noise, layer)
    y_BTD = Dropout(self.dropout, name='attention_dropout')(y_BTD, noise, layer)
    x_BTD = Norm(self.norm_eps, self.dtype, name='attention_norm')(x_BTD + y_BTD)
    up = Dense((self.ffn,), ('embed', 'ffn'), self.initializer, dtype=self.dtype, name='ffn_up')
    down = Dense((width,), ('ffn', 'embed'), self.initializer, dtype=self.dtype, name='ffn_down')
    y_BTD = down(ACTIVATIONS[self.activation](up(x_BTD)))
    y_BTD = Dropout(self.dropout, name='ffn_dropout')(y_BTD, noise, layer)
    x_BTD = Norm(self.norm_eps, self.dtype, name='ffn_norm')(x_BTD + y_BTD)
    x_BTD = nn.with_logical_constraint(x_BTD, ('batch', 'length', 'embed_act'))
    return x_BTD, (x_BTD if self.hidden else None)


class Encoder(nn.Module):
  """A stack of layers as one scanned module: every leaf gets a leading 'layers' axis."""

  layers: int
  remat: bool
  layer: dict[str, Any]  # the fields of Layer

  @nn.compact
  def __call__(self, x_BTD: Array, mask: Mask, noise: Noise | None):
    body = nn.remat(Layer, prevent_cse=False) if self.remat else Layer
    scanned = nn.scan(
      body,
      variable_axes={'params': 0},
      split_rngs={'params': True},
      in_axes=(nn.broadcast, nn.broadcast, 0),  # pyright: ignore[reportArgumentType]
      length=self.layers,
      metadata_params={nn.PARTITION_NAME: 'layers'},
    )
    stack = scanned(**self.layer, name='layers')
    return stack(x_BTD, mask, noise, jnp.arange(self.layers))
