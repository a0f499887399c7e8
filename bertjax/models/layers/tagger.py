"""A tagger that reads the layers of an encoder (Devlin et al. 2019, section 5.3, table 7)."""

from typing import Any, Literal

import flax.linen as nn
import jax.numpy as jnp

from bertjax.kernels.dropout import Noise
from bertjax.models.layers.basic import Dense, Dropout
from bertjax.models.layers.mix import mixed
from bertjax.types import Array

Features = Literal[
  'embeddings', 'last', 'second_to_last', 'sum', 'sum_last_four', 'concat_last_four', 'mix'
]
Kind = Literal['linear', 'bilstm']


class Tagger(nn.Module):
  """Tags from the outputs of an encoder's layers."""

  # the input. embeddings: input of the first layer; last, second_to_last: the output of a layer;
  # sum: that of all; sum_last_four, concat_last_four; mix: all and the embeddings, `mix.mixed`.
  features: Features
  kind: Kind  # the network on it: a linear map, or LSTMs in both directions and a linear map
  # width, layers: of an LSTM in one direction, and their number
  width: int
  layers: int
  dropout: float  # rate of that on the features
  classes: int
  initializer: Any

  @nn.compact
  def __call__(
    self, hidden_LBTD: Array, embedded_BTD: Array, size_B: Array, noise: Noise | None
  ) -> Array:
    """Returns float32 logits of every token [B, T, C] from the outputs of the encoder's layers and
    the input of the first; columns of a row from size_B, int32, on are padding."""
    x_BTD = self._read(hidden_LBTD.astype(jnp.float32), embedded_BTD.astype(jnp.float32))
    x_BTD = Dropout(self.dropout, name='dropout')(x_BTD, noise)
    if self.kind == 'bilstm':
      for number in range(self.layers):
        cell = lambda way, n=number: nn.OptimizedLSTMCell(self.width, name=f'lstm_{n}_{way}')
        both: Any = nn.Bidirectional(nn.RNN(cell('forward')), nn.RNN(cell('backward')))
        x_BTD = both(x_BTD, seq_lengths=size_B)
    head = Dense((self.classes,), ('embed', 'label'), self.initializer, name='head')
    return head(x_BTD)

  def _read(self, hidden_LBTD: Array, embedded_BTD: Array) -> Array:
    if self.features == 'mix':
      return mixed(self, jnp.concatenate([embedded_BTD[None], hidden_LBTD]))
    read = dict(
      embeddings=lambda: embedded_BTD,
      last=lambda: hidden_LBTD[-1],
      second_to_last=lambda: hidden_LBTD[-2],
      sum=lambda: jnp.sum(hidden_LBTD, 0),
      sum_last_four=lambda: jnp.sum(hidden_LBTD[-4:], 0),
      concat_last_four=lambda: jnp.concatenate(list(hidden_LBTD[-4:]), -1),
    )
    return read[self.features]()
