"""A small LSTM as a user would write one: a model of `objectives/lm.py` with a state of its own."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bertjax.field_types import Count, Natural
from bertjax.kernels.dropout import Noise
from bertjax.kernels.look_up import look_up
from bertjax.models.layers import flops as flops_lib
from bertjax.models.layers.basic import INITS, options_of, param, word_table
from bertjax.models.layers.contracts import StreamModel
from bertjax.models.layers.heads import WordHead
from bertjax.types import Array, Batch, Factory


class LSTM(StreamModel):
  """The fields of `config.model`."""

  vocab_size: Natural
  layers: Count
  width: Count

  @nn.compact
  def __call__(
    self, batch: Batch, carry: Any = (), noise: Noise | None = None, hidden: bool = False
  ) -> dict[str, Any]:
    """Runs the layers; see `StreamModel`."""
    init, states = INITS['normal'](0.3), []
    word_VD = word_table(self, 'word', self.vocab_size, self.width, init)
    x_BTD = embedded_BTD = look_up(word_VD, batch['token_BT'])
    for i, state in enumerate(carry or self.carry(len(x_BTD))):
      shape = (2 * self.width, 4 * self.width)
      kernel = param(self, f'kernel_{i}', ('embed', 'ffn'), shape, init)

      def step(state: tuple[Array, Array], x_BD: Array, kernel=kernel) -> tuple[Any, Array]:
        c_BD, h_BD = state
        gates_4BD = jnp.split(jnp.concatenate([x_BD, h_BD], 1) @ kernel, 4, 1)
        keep_BD, new_BD, out_BD = (jax.nn.sigmoid(x) for x in gates_4BD[:3])
        c_BD = keep_BD * c_BD + new_BD * jnp.tanh(gates_4BD[3])
        h_BD = out_BD * jnp.tanh(c_BD)
        return (c_BD, h_BD), h_BD

      state, x_TBD = jax.lax.scan(step, state, x_BTD.swapaxes(0, 1))
      states, x_BTD = [*states, state], x_TBD.swapaxes(0, 1)
    head = WordHead(self.vocab_size, False, '', 0.0, init, name='head')
    out = dict(word=head(x_BTD, word_VD), last_BTD=x_BTD, carry=tuple(states))
    return out | (dict(hidden_LBTD=x_BTD[None], embedded_BTD=embedded_BTD) if hidden else {})

  @nn.nowrap
  def carry(self, rows: int, start: str = 'empty') -> Any:
    """Returns (c, h) of each layer, zeros."""
    return ((jnp.zeros((rows, self.width)), jnp.zeros((rows, self.width))),) * self.layers

  @nn.nowrap
  def flops(self, batch: Batch) -> float:
    """Counts the cells at real tokens, the words at targets."""
    real = int((np.asarray(batch['example_BT']) > 0).sum())
    cells = self.layers * flops_lib.lstm_flops(real, self.width, self.width)
    return cells + flops_lib.head_flops(batch['weight_BP'].sum(), self.width * self.vocab_size)


def make(config) -> LSTM:
  """Builds the model from `config.model`."""
  return LSTM(**{k: v for k, v in dict(config).items() if k not in ('name', 'family', 'size')})


MODEL = Factory(options_of(LSTM), make)
