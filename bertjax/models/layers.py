"""The small pieces every model is made of: parameters with axes, dense, norm, dropout."""

from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertjax.kernels import dropout as dropout_lib
from bertjax.kernels.dropout import Noise

Array = jax.Array
Init = Callable[..., Any]

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
  'gelu_tanh': lambda x: jax.nn.gelu(x, approximate=True),  # original BERT, ALBERT
  'gelu_erf': lambda x: jax.nn.gelu(x, approximate=False),  # RoBERTa, ELECTRA, transformers
  'relu': jax.nn.relu,
}

INITS: dict[str, Callable[[float], Init]] = {
  # Cut at 2 sigma and not compensated (empirical std 0.88 of the argument), as in the TensorFlow
  # original.
  'truncated_normal': jax.nn.initializers.truncated_normal,
  'normal': jax.nn.initializers.normal,  # fairseq and transformers
}


def param(module: nn.Module, name: str, axes: Sequence[str | None], shape, init: Init) -> Array:
  """Declares a float32 parameter with its logical axes: the one place where parameters are born."""
  boxed: Any = nn.with_logical_partitioning(init, tuple(axes))
  return module.param(name, boxed, shape, jnp.float32)


class Dense(nn.Module):
  """Affine map of the last axes of x onto `shape`, computed as one 2-D matrix product.

  Attributes:
    shape: output axes, e.g. (N, H) for queries.
    axes: logical names of (input axes..., output axes...).
    inputs: how many trailing axes of x are contracted.
    init: kernel initializer.
    dtype: compute dtype.
  """

  shape: tuple[int, ...]
  axes: tuple[str, ...]
  initializer: Init
  inputs: int = 1
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(self, x: Array) -> Array:
    contracted = x.shape[x.ndim - self.inputs :]
    kernel = param(self, 'kernel', self.axes, contracted + self.shape, self.initializer)
    bias = param(self, 'bias', self.axes[self.inputs :], self.shape, jax.nn.initializers.zeros)
    batch = x.shape[: x.ndim - self.inputs]
    rows = 1
    for size in contracted:
      rows *= size
    x_2d = x.astype(self.dtype).reshape(-1, rows)
    y_2d = x_2d @ kernel.astype(self.dtype).reshape(rows, -1)
    return (y_2d + bias.astype(self.dtype).reshape(1, -1)).reshape(batch + self.shape)


class Norm(nn.Module):
  """Layer normalisation over the last axis, statistics in float32 (Ba et al. 2016)."""

  eps: float
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(self, x: Array) -> Array:
    shape = (x.shape[-1],)
    scale = param(self, 'scale', ('norm',), shape, jax.nn.initializers.ones)
    bias = param(self, 'bias', ('norm',), shape, jax.nn.initializers.zeros)
    x = x.astype(jnp.float32)
    centred = x - jnp.mean(x, -1, keepdims=True)
    variance = jnp.mean(centred * centred, -1, keepdims=True)
    normed = centred * jax.lax.rsqrt(variance + self.eps)
    ones = (1,) * (x.ndim - 1)
    return (normed * scale.reshape(ones + shape) + bias.reshape(ones + shape)).astype(self.dtype)


class Dropout(nn.Module):
  """Counter-hash dropout whose site is the module's path and the scanned layer's index."""

  rate: float

  @nn.compact
  def __call__(self, x: Array, noise: Noise | None, layer: Array | int = 0) -> Array:
    return dropout_lib.dropout(x, self.rate, noise, dropout_lib.site(self.path, layer))


def padded_rows(size: int) -> int:
  """Rows of a table of `size` ids: the next multiple of 128, which meshes and TPU tiles divide."""
  return -(-size // 128) * 128
