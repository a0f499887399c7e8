"""AWD-LSTM (Merity et al. 2018, salesforce/awd-lstm-lm), the language model of ULMFiT.

Layers of LSTMs over a table of words that is the softmax, too. Five dropouts, each of its own
grain (fastai 0.7, lm_rnn.py and rnn_reg.py): words, once a step; the layers' input, what goes from
one to the next, and their output, the same at all columns of a row; the kernels of the states, once
a step. Two penalties hold the last layer's activations small and slow.
"""

import itertools
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bertjax.errors import UserError
from bertjax.field_types import Count, Fraction, Natural, NonNegative, Positive
from bertjax.kernels import dropout as dropout_lib
from bertjax.kernels.dropout import Noise
from bertjax.kernels.look_up import look_up
from bertjax.models.layers import concat_pool
from bertjax.models.layers import flops as flops_lib
from bertjax.models.layers.basic import (
  Dtype,
  TorchInit,
  given_fields,
  options_of,
  uniform,
  word_table,
)
from bertjax.models.layers.contracts import LabelModel, StreamModel
from bertjax.models.layers.heads import Head, WordHead, gather_positions
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
    ar, tar: scales of the mean square of the output (alpha), and of its change from column to
      column (beta), in training.
    ar_of: which output `ar` is of: 'dropped' (awd-lstm-lm, main.py; fastai 2, callback/rnn.py) or
      'whole' (fastai 0.7, lm_rnn.py:seq2seq_reg).
    init_std: of words, which start uniform; kernels and biases of a layer of n cells within
      1 / sqrt(n) (torch).
    backward: whether texts are read from their end. Rows of a stream come turned (`Store.turned`),
      a text alone is turned here.
    segment: columns whose gates the backward pass makes again together; 0: all are kept.
    labels: (name, classes) of each label of texts; () where words are scored.
    chunk, pooled: of texts that have labels (BPT3C): columns of a piece, before which no gradient
      goes and whose dropouts are its own; and the columns of the end of a text that are pooled, by
      whole pieces, 0: all.
    inner, head_dropout, inner_dropout: of the head of labels, see `ConcatPool`.
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
  ar: NonNegative
  tar: NonNegative
  ar_of: Literal['dropped', 'whole']
  init_std: Positive
  vocab_size: Natural = 0
  backward: bool = False
  segment: Natural = 0
  labels: tuple[tuple[str, Natural], ...] = ()
  chunk: Count = 70
  pooled: Natural = 1400
  inner: Count = 50
  head_dropout: Fraction = 0.4
  inner_dropout: Fraction = 0.1
  dtype: Dtype = 'float32'

  divides_columns = has_segments = False  # a column is read after the one before it

  @nn.compact
  def __call__(
    self, batch: Batch, carry: Any = (), noise: Noise | None = None, hidden: bool = False
  ):
    """Runs the model, see `StreamModel`; hidden_LBTD is the last layer's output alone, for the
    others are wider."""
    real_BT = batch['example_BT'] > 0
    states = carry or self.carry(len(real_BT))
    word_VD = self._table()
    embedded_BTD, x_BTD, states = self._run(word_VD, batch['token_BT'], real_BT, states, noise)
    dropped_BTD = self._locked(x_BTD, self.dropout, noise, 'output')
    dtype, zeros = jnp.dtype(self.dtype), jax.nn.initializers.zeros
    head = WordHead(self.vocab_size, zeros, dtype, word_bias=self.word_bias, name='head')
    out: dict[str, Any] = dict(word=head(dropped_BTD, word_VD), last_BTD=dropped_BTD, carry=states)
    if noise is not None:
      out |= dict(penalties=self._penalties(x_BTD, dropped_BTD, real_BT))
    if hidden:
      out |= dict(hidden_LBTD=x_BTD[None], embedded_BTD=embedded_BTD)
    return out

  def read(self, batch: Batch, hidden: bool = True) -> dict[str, Any]:
    """Runs the model on texts, see `Model.read`; word, of one that reads backward, is of the token
    before each."""
    if self.labels or not self.backward:  # with labels a call turns texts
      return super().read(batch, hidden)
    turned = lambda x_BTD: turn(x_BTD, batch['example_BT'] > 0)
    token_BT = turned(batch['token_BT'][..., None])[..., 0]
    out = self(dict(batch, token_BT=token_BT), hidden=hidden)
    out |= {key: turned(out[key]) for key in ('last_BTD', 'embedded_BTD') if key in out}
    word = out['word']._replace(hidden_BPE=turned(out['word'].hidden_BPE))
    return out | dict(word=word) | (dict(hidden_LBTD=out['last_BTD'][None]) if hidden else {})

  @nn.nowrap
  def require_forward(self) -> None:
    """Raises UserError: a model that reads backward."""
    if self.backward:
      raise UserError(
        'config.model.backward=True predicts the token before each, and a text is scored by the '
        'one after each: expected a model that reads forward'
      )

  def _table(self) -> Array:
    return word_table(self, 'word', self.vocab_size, self.width, uniform(self.init_std * 3**0.5))

  def _run(
    self, word_VD: Array, token_BT: Array, real_BT: Array, states: Any, noise: Noise | None
  ) -> tuple[Array, Array, tuple[State, ...]]:
    """Returns what enters the first layer, the output of the last one, and the new states."""
    dropped_VD, found = self._dropped_rows(word_VD, noise), []
    x_BTD = look_up(dropped_VD, token_BT).astype(jnp.dtype(self.dtype))
    embedded_BTD = x_BTD = self._locked(x_BTD, self.input_dropout, noise, 'input')
    for number, state in enumerate(states):
      x_BTD, state = self._layer(number)(x_BTD, state, real_BT, noise)
      found.append(state)
      if number < self.layers - 1:
        x_BTD = self._locked(x_BTD, self.hidden_dropout, noise, f'hidden_{number}')
    return embedded_BTD, x_BTD, tuple(found)

  def _dropped_rows(self, word_VD: Array, noise: Noise | None) -> Array:
    """Returns the table with rows at zero and the others scaled, one draw for a batch."""
    if noise is None:
      return word_VD
    ones_V = jnp.ones(len(word_VD))
    site = dropout_lib.site((*self.path, 'word_dropout'))
    kept_V = dropout_lib.shared_dropout(ones_V, self.word_dropout, noise, site)
    return word_VD * kept_V[:, None]

  def _locked(self, x_BTD: Array, rate: float, noise: Noise | None, name: str) -> Array:
    """Dropout whose choice of units is the same at all columns of a row."""
    ones_BD = jnp.ones((len(x_BTD), x_BTD.shape[-1]), x_BTD.dtype)
    site = dropout_lib.site((*self.path, f'{name}_dropout'))
    return x_BTD * dropout_lib.dropout(ones_BD, rate, noise, site)[:, None]

  def _penalties(self, x_BTD: Array, dropped_BTD: Array, real_BT: Array) -> dict[str, Term]:
    """AR and TAR of the last layer; no change is counted into, out of or within padding."""
    of = dropped_BTD if self.ar_of == 'dropped' else x_BTD
    square = lambda y_BTD: jnp.mean(jnp.square(y_BTD.astype(jnp.float32)), -1)
    both_BT = real_BT[:, 1:] & real_BT[:, :-1]
    change_BT = square(x_BTD[:, 1:] - x_BTD[:, :-1])
    return dict(
      ar=Term.mean(square(of), real_BT.astype(jnp.float32), self.ar),
      tar=Term.mean(change_BT, both_BT.astype(jnp.float32), self.tar),
    )

  @nn.nowrap
  def _layer(self, number: int) -> LSTM:
    """Returns a layer, counted from 0."""
    size = self._size(number)
    init = uniform(size**-0.5)
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
    sizes, dtype = map(self._size, range(self.layers)), jnp.dtype(self.dtype)
    return tuple(State(jnp.zeros((rows, n)), jnp.zeros((rows, n), dtype)) for n in sizes)

  @property
  def output_heads(self) -> tuple[Head, ...]:
    """The heads of its labels, or the one for words."""
    labels = tuple(Head('text', name, classes, name) for name, classes in self.labels)
    return labels or (Head('word', 'word', self.vocab_size, 'head' if self.word_bias else ''),)

  @nn.nowrap
  def flops(self, batch: Batch) -> float:
    """Counts model FLOPs, see `Model.flops`."""
    predicted = flops_lib.targets(batch)
    return self._layer_flops(batch) + flops_lib.head_flops(predicted, self.width * self.vocab_size)

  @nn.nowrap
  def _layer_flops(self, batch: Batch) -> float:
    sizes = itertools.pairwise([self.width, *map(self._size, range(self.layers))])
    gates = (4 * cells * (inputs + cells) for inputs, cells in sizes)
    return flops_lib.head_flops(flops_lib.real(batch), *gates)


class Labelled(AWDLSTM, LabelModel, kw_only=True):
  """AWD-LSTM with heads for labels of texts, as ULMFiT fine-tunes it."""

  one_text = True
  batch_statistics = True  # of the heads' norms

  @nn.compact
  def __call__(self, batch: Batch, noise: Noise | None = None, hidden: bool = False):
    """Runs the model, see `LabelModel`; updates are the running statistics of the heads' norms."""
    real_BT = batch['example_BT'] > 0
    turned = lambda x_BTD: turn(x_BTD, real_BT) if self.backward else x_BTD
    embedded_BTD, x_BTD = self._pieces(turned(batch['token_BT'][..., None])[..., 0], real_BT, noise)
    start_T = np.arange(real_BT.shape[1]) // self.chunk * self.chunk
    first_B = jnp.sum(real_BT, 1) - (self.pooled or np.iinfo(np.int32).max)
    kept_BT = real_BT & (start_T[None] >= first_B[:, None])
    weight_B = None if noise is None else batch['example_weight_BG'][:, 0]
    read_BE = concat_pool.pooled(x_BTD, kept_BT)
    logits, new = {}, {}
    for name, classes in self.labels:
      init = TorchInit(1.0)
      dropouts = (self.head_dropout, self.inner_dropout)
      head = concat_pool.ConcatPool(classes, self.inner, dropouts, init, name=name)
      logits_BC, new[name] = head(read_BE, weight_B, noise)
      logits[name] = logits_BC[:, None]
    out: dict[str, Any] = dict(label_BGC=logits, token_label_BTC={}, last_BTD=turned(x_BTD))
    if noise is not None:
      updates = {concat_pool.STATISTICS: (new, jax.tree.map(jnp.ones_like, new))}
      out |= dict(penalties=self._penalties(x_BTD, x_BTD, kept_BT), updates=updates)
    if hidden:
      out |= dict(hidden_LBTD=out['last_BTD'][None], embedded_BTD=turned(embedded_BTD))
    return out

  def _pieces(self, token_BT: Array, real_BT: Array, noise: Noise | None) -> tuple[Array, Array]:
    """Returns what enters the first layer and the output of the last one, piece by piece."""
    columns, word_VD = token_BT.shape[1], self._table()
    more = -columns % self.chunk if columns > self.chunk else 0
    split = lambda x_BT: jnp.moveaxis(
      jnp.pad(x_BT, ((0, 0), (0, more))).reshape(len(x_BT), -1, min(self.chunk, columns)), 1, 0
    )

    def run(module: Labelled, states: Any, piece: Any) -> tuple[Any, Any]:
      token_BT, real_BT, number = piece
      own = noise and noise._replace(seed=dropout_lib.mix(noise.seed, number))
      states = jax.lax.stop_gradient(states)
      *found, states = module._run(word_VD, token_BT, real_BT, states, own)
      return states, found

    scanned = nn.scan(run, variable_broadcast='params', split_rngs={'params': False})
    parts = split(token_BT), split(real_BT), jnp.arange(-(-columns // self.chunk), dtype=jnp.uint32)
    _, (embedded_KBTD, x_KBTD) = scanned(self, self.carry(len(token_BT)), parts)
    joined = lambda x_KBTD: jnp.concatenate([*x_KBTD], 1)[:, :columns]
    return joined(embedded_KBTD), joined(x_KBTD)

  @nn.nowrap
  def flops(self, batch: Batch) -> float:
    """Counts model FLOPs, see `Model.flops`."""
    sizes = (self.inner * (3 * self.width + classes) for _, classes in self.labels)
    heads = flops_lib.head_flops(flops_lib.examples(batch), *sizes)
    return self._layer_flops(batch) + heads


def turn(x_BTD: Array, real_BT: Array) -> Array:
  """Returns rows with their real columns, which come first, in the other order."""
  column_BT = jnp.broadcast_to(jnp.arange(real_BT.shape[1])[None], real_BT.shape)
  last_B1 = jnp.sum(real_BT, 1)[:, None] - 1
  return gather_positions(x_BTD, jnp.where(real_BT, last_B1 - column_BT, column_BT))


def make(config) -> AWDLSTM:
  """Builds the model from `config.model`: with labels the one for fine-tuning."""
  fields = given_fields(AWDLSTM, config)
  return (Labelled if fields['labels'] else AWDLSTM)(**fields)


MODEL = Factory(options_of(AWDLSTM), make)
