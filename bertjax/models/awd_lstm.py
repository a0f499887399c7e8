"""AWD-LSTM (Merity et al. 2018, salesforce/awd-lstm-lm), the language model of ULMFiT.

Layers of LSTMs over a table of words that is the softmax, too. Five dropouts, each of its own
grain (fastai 0.7, lm_rnn.py and rnn_reg.py): words, once a step; the layers' input, what goes from
one to the next, and their output, the same at all columns of a row; the kernels of the states, once
a step. Two penalties hold the last layer's activations small and slow.
"""

from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bertjax.field_types import Count, Fraction, Natural, NonNegative, Positive
from bertjax.kernels import dropout as dropout_lib
from bertjax.kernels.cross_entropy import Scores
from bertjax.kernels.dropout import Noise
from bertjax.kernels.look_up import look_up
from bertjax.models.layers import flops as flops_lib
from bertjax.models.layers.basic import Dtype, given_fields, options_of, param, word_table
from bertjax.models.layers.contracts import StreamModel
from bertjax.models.layers.heads import Head
from bertjax.models.layers.lstm import LSTM, State
from bertjax.models.layers.memory import Start
from bertjax.types import Array, Batch, Factory, Term

# test, tiny: ours. base: awd-lstm-lm, main.py; ULMFiT paper, section 4.1.
SIZES: dict[str, dict[str, int]] = {
  'test': dict(layers=3, width=64, cells=96),
  'tiny': dict(layers=3, width=128, cells=256),
  'base': dict(layers=3, width=400, cells=1150),
}


class AWDLSTM(StreamModel, kw_only=True):
  """The model of `objectives/lm.py`; fields are `config.model`.

  Attributes:
    vocab_size: ids 0..vocab_size-1; the table itself is padded to a multiple of 128 rows.
    layers, cells: L, and the cells of each but the last, which has `width`.
    width: D, of words and of the output.
    word_bias: whether the words have a bias in the softmax (fastai from 1.0 on, awd-lstm-lm).
    word_dropout: of rows of the table where it is looked up, not where it scores.
    input_dropout, hidden_dropout, dropout: of what enters the first layer, goes between layers, and
      comes out of the last one.
    weight_dropout: of the kernels of the states.
    activation, slowness: scales of the mean square of the output (AR, alpha), and of its change
      from column to column (TAR, beta), in training.
    activation_of: which output the first penalty is of: 'dropped' (awd-lstm-lm, main.py; fastai 2,
      callback/rnn.py) or 'whole' (fastai 0.7, lm_rnn.py:seq2seq_reg).
    init_range: words start uniform within it, kernels and biases of a layer of n cells within
      1 / sqrt(n) (torch).
    segment: columns whose gates the backward pass makes again together; 0: all are kept.
  """

  layers: Count
  width: Count
  cells: Count
  word_bias: bool
  word_dropout: Fraction
  input_dropout: Fraction
  weight_dropout: Fraction
  hidden_dropout: Fraction
  dropout: Fraction
  activation: NonNegative
  slowness: NonNegative
  activation_of: Literal['dropped', 'whole']
  init_range: Positive
  vocab_size: Natural = 0
  segment: Natural = 0
  dtype: Dtype = 'float32'

  divides_columns = has_segments = False  # a column is read after the one before it

  @nn.compact
  def __call__(
    self,
    batch: Batch,
    carry: tuple[State, ...] = (),
    noise: Noise | None = None,
    hidden: bool = False,
  ):
    """Runs the model, see `StreamModel`. Reads token and example; hidden_LBTD is the last layer's
    output alone, for the others are wider. With noise the dict has penalties, name -> Term."""
    dtype, real_BT = jnp.dtype(self.dtype), batch['example_BT'] > 0
    uniform = _uniform(self.init_range)
    word_VD = word_table(self, 'word', self.vocab_size, self.width, uniform)
    x_BTD = look_up(self._dropped_rows(word_VD, noise), batch['token_BT']).astype(dtype)
    embedded_BTD = x_BTD = self._locked(x_BTD, self.input_dropout, noise, 'input')
    states = []
    for number, state in enumerate(carry or self.carry(len(x_BTD))):
      x_BTD, state = self._layer(number)(x_BTD, state, real_BT, noise)
      states.append(state)
      if number < self.layers - 1:
        x_BTD = self._locked(x_BTD, self.hidden_dropout, noise, f'hidden_{number}')
    dropped_BTD = self._locked(x_BTD, self.dropout, noise, 'output')
    bias_V = jnp.zeros(len(word_VD))
    if self.word_bias:
      bias_V = param(self, 'word_bias', ('vocab',), bias_V.shape, jax.nn.initializers.zeros)
    word = Scores(dropped_BTD, word_VD, bias_V, self.vocab_size)
    out: dict[str, Any] = dict(word=word, last_BTD=dropped_BTD, carry=tuple(states))
    if noise is not None:
      out |= dict(penalties=self._penalties(x_BTD, dropped_BTD, real_BT))
    if hidden:
      out |= dict(hidden_LBTD=x_BTD[None], embedded_BTD=embedded_BTD)
    return out

  def _dropped_rows(self, word_VD: Array, noise: Noise | None) -> Array:
    """The table with some rows at zero and the others scaled, the same for every row of a batch."""
    if noise is None:
      return word_VD
    alone = noise._replace(row_B=jnp.zeros(1, jnp.uint32))
    ones_V = jnp.ones((1, len(word_VD)))
    site = dropout_lib.site((*self.path, 'word_dropout'))
    return word_VD * dropout_lib.dropout(ones_V, self.word_dropout, alone, site)[0][:, None]

  def _locked(self, x_BTD: Array, rate: float, noise: Noise | None, name: str) -> Array:
    """Dropout whose choice of units is the same at all columns of a row."""
    ones_BD = jnp.ones((len(x_BTD), x_BTD.shape[-1]), x_BTD.dtype)
    site = dropout_lib.site((*self.path, f'{name}_dropout'))
    return x_BTD * dropout_lib.dropout(ones_BD, rate, noise, site)[:, None]

  def _penalties(self, x_BTD: Array, dropped_BTD: Array, real_BT: Array) -> dict[str, Term]:
    """AR and TAR of the last layer; no change is counted into, out of or within padding."""
    of = dropped_BTD if self.activation_of == 'dropped' else x_BTD
    square = lambda y_BTD: jnp.mean(jnp.square(y_BTD.astype(jnp.float32)), -1)
    both_BT = real_BT[:, 1:] & real_BT[:, :-1]
    of_B = lambda y_BT, at_BT: (jnp.sum(y_BT * at_BT), jnp.sum(at_BT, dtype=jnp.float32))
    return dict(
      activation=Term(*of_B(square(of), real_BT), scale=self.activation),
      slowness=Term(*of_B(square(x_BTD[:, 1:] - x_BTD[:, :-1]), both_BT), scale=self.slowness),
    )

  @nn.nowrap
  def _layer(self, number: int) -> LSTM:
    """Returns a layer, counted from 0."""
    size = self._size(number)
    init = _uniform(size**-0.5)
    return LSTM(
      size, init, init, biases=2, weight_dropout=self.weight_dropout, segment=self.segment,
      dtype=jnp.dtype(self.dtype), name=f'lstm_{number}',
    )  # fmt: skip

  @nn.nowrap
  def _size(self, number: int) -> int:
    return self.cells if number < self.layers - 1 else self.width

  @nn.nowrap
  def carry(self, rows: int, start: Start = 'empty') -> tuple[State, ...]:
    """Returns (c, h) of each layer, zeros."""
    del start
    sizes, dtype = map(self._size, range(self.layers)), jnp.dtype(self.dtype)
    return tuple(State(jnp.zeros((rows, n)), jnp.zeros((rows, n), dtype)) for n in sizes)

  @property
  def output_heads(self) -> tuple[Head, ...]:
    """The head for words."""
    return (Head('word', 'word', self.vocab_size, 'word_bias' if self.word_bias else ''),)

  @nn.nowrap
  def flops(self, batch: Batch) -> float:
    """Counts model FLOPs, see `Model.flops`."""
    real, inputs, count = float(np.sum(np.asarray(batch['example_BT']) > 0)), self.width, 0.0
    for number in range(self.layers):
      count += flops_lib.lstm_flops(real, inputs, self._size(number))
      inputs = self._size(number)
    predicted = float(np.sum(batch['weight_BP']))
    return count + flops_lib.head_flops(predicted, self.width * self.vocab_size)


def _uniform(limit: float) -> Any:
  """Returns the initializer that draws uniformly from -limit to limit."""
  return lambda key, shape, dtype: jax.random.uniform(key, shape, dtype, -limit, limit)


def make(config) -> AWDLSTM:
  """Builds the model from `config.model`."""
  return AWDLSTM(**given_fields(AWDLSTM, config))


MODEL = Factory(options_of(AWDLSTM), make)
