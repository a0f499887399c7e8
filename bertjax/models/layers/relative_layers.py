"""The layers that Transformer-XL and XLNet share: attention by distance, feed-forward, sinusoids.

Dai et al. 2019 and Yang et al. 2019. The projections have no biases; those of the query (u and w,
r_w_bias and r_r_bias in the originals) come with the call, since one pair may serve all layers.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bertjax.kernels import dropout as dropout_lib
from bertjax.kernels.dropout import Noise
from bertjax.kernels.relative_attention import Dropout as AttentionDropout
from bertjax.kernels.relative_attention import Mask, Relative, relative_attention
from bertjax.models.layers.basic import ACTIVATIONS, Dense, Dropout, Init

Array = jax.Array


class RelativeAttention(nn.Module):
  """The projections around the attention operation; residual, norm and dropout are the layer's.

  `__call__` is the whole of it. A stream of its own takes it in parts: `query` of its slots,
  `attend` with the keys and values of another stream, `out`.

  Attributes:
    head_size: H; N * H need not be D.
    positions: whether there is a table of positions to project.
    impl: of `relative_attention`.
  """

  heads: int
  head_size: int
  width: int
  initializer: Init
  dropout: float
  positions: bool = True
  dtype: Any = jnp.float32
  impl: str | None = None

  def setup(self):
    shape, axes = (self.heads, self.head_size), ('embed', 'heads', 'head')
    dense = lambda: Dense(shape, axes, self.initializer, bias=False, dtype=self.dtype)
    self.query, self.key, self.value = dense(), dense(), dense()
    if self.positions:
      self.position = dense()
    axes = ('heads', 'head', 'embed')
    self.out = Dense(
      (self.width,), axes, self.initializer, inputs=2, bias=False, dtype=self.dtype
    )  # fmt: skip

  def __call__(
    self,
    x_BTD: Array,
    seen_BSD: Array,
    mask: Mask,
    relative: Relative,
    noise: Noise | None,
    layer: Array,
  ) -> Array:
    """Attends from x to what it sees.

    Args:
      x_BTD: the queries' inputs.
      seen_BSD: memory and input, in this order.
      mask: who sees whom.
      relative: with `r_RNH` from `project`, u and w.
      noise: keys of the dropout of the probabilities, or None.
      layer: number of the layer.

    Returns:
      [B, T, D], projected.
    """
    keys = self.key(seen_BSD), self.value(seen_BSD)
    return self.out(self.attend(self.query(x_BTD), *keys, mask, relative, noise, layer))

  def attend(
    self,
    q_BTNH: Array,
    k_BSNH: Array,
    v_BSNH: Array,
    mask: Mask,
    relative: Relative,
    noise: Noise | None,
    layer: Array,
  ) -> Array:
    """The operation, [B, T, N, H]; a second call in a step needs other noise (`dropout.fork`)."""
    dropout = None
    if noise is not None and self.dropout:
      site = dropout_lib.site(self.path, layer)
      dropout = AttentionDropout(self.dropout, noise, site)
    return relative_attention(q_BTNH, k_BSNH, v_BSNH, mask, relative, dropout, self.impl)

  def project(self, table_RD: Array) -> Array:
    """A table of positions as `Relative.r_RNH`."""
    return self.position(table_RD)


class FeedForward(nn.Module):
  """Up, activation, dropout, down, dropout; with biases."""

  ffn: int
  activation: str
  initializer: Init
  dropout: float
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(self, x_BTD: Array, noise: Noise | None, layer: Array) -> Array:
    width = x_BTD.shape[-1]
    up = Dense((self.ffn,), ('embed', 'ffn'), self.initializer, dtype=self.dtype, name='up')
    down = Dense((width,), ('ffn', 'embed'), self.initializer, dtype=self.dtype, name='down')
    y_BTF = ACTIVATIONS[self.activation](up(x_BTD))
    y_BTF = Dropout(self.dropout, name='inner_dropout')(y_BTF, noise, layer)
    return Dropout(self.dropout, name='dropout')(down(y_BTF), noise, layer)


class DistanceTable(nn.Module):
  """Sinusoids of distances as an input of every layer, with one dropout for all layers and rows."""

  dropout: float
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(self, distance_R: np.ndarray, width: int, clamp: int, noise: Noise | None) -> Array:
    table_RD = jnp.asarray(sinusoids(distance_R, width, clamp), self.dtype)
    if noise is not None:  # the table has no rows of a batch: every device draws the same
      noise = noise._replace(row_B=jnp.zeros(1, jnp.uint32))
    dropped_1RD: Any = Dropout(self.dropout, name='dropout')(table_RD[None], noise)
    return dropped_1RD[0]


def memory_scan(layer: Any, layers: int, remat: bool) -> Any:
  """A stack of layers as one scan over (x, what all get, noise, memory, number of the layer).

  Args:
    layer: a module class that returns x, and (its new memory or None, its output or None).
    layers: L.
    remat: recompute the layers in the backward pass.

  Returns:
    The class of the stack. Memories have their layers on axis 1, outputs and parameters on axis 0.
  """
  return nn.scan(
    nn.remat(layer, prevent_cse=False) if remat else layer,
    variable_axes={'params': 0},
    split_rngs={'params': True},
    in_axes=(nn.broadcast, nn.broadcast, 1, 0),  # pyright: ignore[reportArgumentType]
    out_axes=(1, 0),  # pyright: ignore[reportArgumentType]
    length=layers,
    metadata_params={nn.PARTITION_NAME: 'layers'},
  )


def sinusoids(distance_R: np.ndarray, width: int, clamp: int = 0) -> np.ndarray:
  """[sin | cos] of distance / 10000^(2k / width), k < width / 2, float32 [R, width].

  Args:
    distance_R: integers of either sign.
    width: even. All sines come first, as in both originals, and not in turn with the cosines.
    clamp: the largest distance told apart, either way; 0 for none (clamp_len).
  """
  if clamp:
    distance_R = np.clip(distance_R, -clamp, clamp)
  angle = distance_R[:, None] / 10000 ** (np.arange(0, width, 2) / width)
  return np.concatenate([np.sin(angle), np.cos(angle)], -1).astype(np.float32)
