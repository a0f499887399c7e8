"""Output heads: masked tokens over the tied word table, pooled [CLS], labels."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertjax.models.layers import ACTIVATIONS, Dense, Init, Norm, param

Array = jax.Array


class MaskedHead(nn.Module):
  """dense -> activation -> norm -> tied word table + bias, on gathered positions only.

  Rows of the word table beyond `vocab_size` are padding: their logits are -inf.
  """

  vocab_size: int
  activation: str
  norm_eps: float
  initializer: Init
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(self, h_BPD: Array, table_VD: Array) -> Array:
    width, rows = h_BPD.shape[-1], table_VD.shape[0]
    dense = Dense(
      (width,), ('embed', 'embed_out'), self.initializer, dtype=self.dtype, name='dense'
    )
    h_BPD = ACTIVATIONS[self.activation](dense(h_BPD))
    h_BPD = Norm(self.norm_eps, self.dtype, name='norm')(h_BPD)
    bias_V = param(self, 'bias', ('vocab',), (rows,), jax.nn.initializers.zeros)
    flat = h_BPD.reshape(-1, width) @ table_VD.astype(self.dtype).T
    logits_BPV = flat.reshape(h_BPD.shape[:-1] + (rows,)).astype(jnp.float32) + bias_V[None, None]
    real_V = jnp.arange(rows) < self.vocab_size
    return jnp.where(real_V[None, None], logits_BPV, -jnp.inf)


def gather_positions(x_BTD: Array, position_BP: Array) -> Array:
  """x_BTD at the columns position_BP -> [B, P, D]."""
  return jnp.take_along_axis(x_BTD, position_BP[:, :, None], axis=1)
