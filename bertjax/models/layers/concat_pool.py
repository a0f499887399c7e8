"""A classifier's head on the last, the largest and the mean output of a text (ULMFiT, section 3.3).

Batch norm, dropout and a dense layer, twice (fastai 0.7, lm_rnn.py:PoolingLinearClassifier). The
norms' statistics in training are those of the whole batch, on all devices; the running ones are the
collection `batch_stats`, whose new values are `Out.updates`.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertjax.kernels import mesh
from bertjax.kernels.dropout import Noise
from bertjax.models.layers.basic import Dense, Dropout, Init, param
from bertjax.types import Array

STATISTICS = 'batch_stats'  # the collection
EPS, MOMENTUM = 1e-5, 0.1  # torch.nn.BatchNorm1d


def pooled(x_BTD: Array, kept_BT: Array) -> Array:
  """Returns the last, the largest and the mean of the columns that are kept, float32 [B, 3 D];
  zeros for a row without any."""
  x_BTD, kept_BT1 = x_BTD.astype(jnp.float32), kept_BT[..., None]
  last_B = jnp.max(jnp.where(kept_BT, jnp.arange(kept_BT.shape[1])[None], 0), 1)
  last_BD = jnp.take_along_axis(x_BTD, last_B[:, None, None], 1)[:, 0]
  most_BD = jnp.max(jnp.where(kept_BT1, x_BTD, -jnp.inf), 1)
  size_B1 = jnp.sum(kept_BT, 1, dtype=jnp.float32)[:, None]
  mean_BD = jnp.sum(jnp.where(kept_BT1, x_BTD, 0), 1) / jnp.maximum(size_B1, 1)
  return jnp.where(size_B1 > 0, jnp.concatenate([last_BD, most_BD, mean_BD], 1), 0)


class BatchNorm(nn.Module):
  """Normalises each entry over the rows of the batch (Ioffe and Szegedy 2015)."""

  @nn.compact
  def __call__(self, x_BD: Array, weight_B: Array | None) -> tuple[Array, dict[str, Array]]:
    """Returns float32 [B, D], and new running statistics.

    Args:
      x_BD: any.
      weight_B: in training, 1 for rows that count, 0 for others; None: the running statistics are
        those that it is normalised by.
    """
    shape = x_BD.shape[-1:]
    scale_D = param(self, 'scale', ('norm',), shape, jax.nn.initializers.ones)
    bias_D = param(self, 'bias', ('norm',), shape, jax.nn.initializers.zeros)
    mean_D: Any = self.variable(STATISTICS, 'mean', jnp.zeros, shape).value
    var_D: Any = self.variable(STATISTICS, 'var', jnp.ones, shape).value
    new = dict(mean=mean_D, var=var_D)
    if weight_B is not None:
      weight_B1 = weight_B[:, None]
      total = lambda y_BD: mesh.over_rows(jnp.sum(weight_B1 * y_BD, 0))
      rows = mesh.over_rows(jnp.sum(weight_B))
      mean_D = total(x_BD) / jnp.maximum(rows, 1)
      var_D = total(jnp.square(x_BD - mean_D[None])) / jnp.maximum(rows, 1)
      unbiased_D = var_D * rows / jnp.maximum(rows - 1, 1)
      found = dict(mean=mean_D, var=unbiased_D)
      new = {key: (1 - MOMENTUM) * new[key] + MOMENTUM * x for key, x in found.items()}
    normed_BD = (x_BD - mean_D[None]) * jax.lax.rsqrt(var_D + EPS)[None]
    return normed_BD * scale_D[None] + bias_D[None], new


class ConcatPool(nn.Module):
  """Logits of the classes of a text, from the `pooled` outputs of its last layer."""

  classes: int
  inner: int  # width between the dense layers
  dropouts: tuple[float, float]  # before each of them
  initializer: Init

  @nn.compact
  def __call__(
    self, x_BE: Array, weight_B: Array | None, noise: Noise | None
  ) -> tuple[Array, dict[str, Any]]:
    """Returns float32 logits_BC, and new running statistics by module; `weight_B` as of
    `BatchNorm`."""
    new, axes = {}, ('embed', 'label')
    sizes = zip((self.inner, self.classes), self.dropouts, strict=True)
    for number, (size, rate) in enumerate(sizes):
      norm = BatchNorm(name=f'norm_{number}')
      x_BE, new[f'norm_{number}'] = norm(x_BE, weight_B)
      x_BE = Dropout(rate, name=f'dropout_{number}')(x_BE, noise)
      x_BE = Dense((size,), axes, self.initializer, name=f'dense_{number}')(x_BE)
      if not number:
        x_BE = jax.nn.relu(x_BE)
    return x_BE, new
