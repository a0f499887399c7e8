"""ELMo: two language models of LSTMs, one in each direction, over the same words and softmax.

Peters et al. 2018; allenai/bilm-tf, bilm/training.py:LanguageModel. In training each direction
reads a text of its own, which goes on where it stopped, and keeps its state. A text that is read
for its vectors alone is read by both; labels of texts and of words are read off the weighted layers
(bilm/elmo.py:weight_layers), which stay as they are.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bertjax.errors import UserError
from bertjax.field_types import Count, Fraction, Natural, NonNegative
from bertjax.kernels.dropout import Noise, fork
from bertjax.kernels.look_up import look_up
from bertjax.models.layers import char_cnn, mix
from bertjax.models.layers import flops as flops_lib
from bertjax.models.layers.basic import (
  Dropout,
  Dtype,
  given_fields,
  options_of,
  uniform,
  word_table,
)
from bertjax.models.layers.contracts import LabelModel, Model
from bertjax.models.layers.heads import Head, WordHead, declared, label_heads, pool
from bertjax.models.layers.lstm import LSTM, State
from bertjax.models.layers.memory import Start
from bertjax.types import Array, Batch, Factory

States = tuple[State, ...]

# test, tiny: ours. original: bilm-tf/bin/train_elmo.py.
SIZES: dict[str, dict[str, int]] = {
  'test': dict(layers=2, width=16, cell=32),
  'tiny': dict(layers=2, width=128, cell=256),
  'original': dict(layers=2, width=512, cell=4096),
}


def glorot(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
  """Draws a kernel of an LSTM as TensorFlow does by default: uniform within sqrt(6 / (inputs +
  outputs)) of the matrix that inputs and state share, both as wide."""
  inputs = 2 * shape[0] if len(shape) == 3 else shape[0]
  bound = (6 / (inputs + np.prod(shape[1:]))) ** 0.5
  return uniform(bound)(key, shape, dtype)


class ELMo(Model):
  """The model of `objectives/bilm.py`; fields are `config.model`.

  Attributes:
    vocab_size: ids 0..vocab_size-1; tables are padded to a multiple of 128 rows.
    outputs: of the words that are scored, the first ids; 0: all.
    characters: W, of a word as it is read, its marks included; 0: each word has a vector.
    character_width, filters, highways: of `CharCNN`: its embedding, filters and layers.
    layers: of each direction.
    width: of the words and of what a layer gives; the vectors of both directions are twice as wide.
    cell: of a layer's state.
    skips: a layer but the first adds its input to what it gives.
    cell_clip, projection_clip: largest absolute values of the cell and of what a layer gives; 0:
      none.
    dropout: of the input of each layer and of what the last one gives.
    segment: columns between two states that are kept for the gradient; 0: all are.
    words: whether there is a softmax: language models have one, features none.
    labels, token_labels: (name, classes) of each label of texts, read off the mean of their words,
      and of words.
    head_dropout: of the weighted layers.
    mix_norm: each layer is normalised over all words of the batch before it is weighted.
  """

  layers: Count
  width: Count
  cell: Count
  skips: bool
  cell_clip: NonNegative
  projection_clip: NonNegative
  dropout: Fraction
  vocab_size: Natural = 0
  outputs: Natural = 0
  characters: Natural = 0
  character_width: Count = 16
  filters: tuple[tuple[Count, Count], ...] = char_cnn.FILTERS
  highways: Natural = 2
  segment: Natural = 0
  words: bool = True
  labels: tuple[tuple[str, Natural], ...] = ()
  token_labels: tuple[tuple[str, Natural], ...] = ()
  head_dropout: Fraction = 0.5
  mix_norm: bool = False
  dtype: Dtype = 'float32'

  divides_columns = has_segments = False  # a column waits for the one before it

  def setup(self):
    normal = jax.nn.initializers.normal(self.width**-0.5)
    dtype = jnp.dtype(self.dtype)
    if self.characters:
      own = self.character_width, self.filters, self.highways
      self.spelled = char_cnn.CharCNN(self.width, *own, dtype)
    else:
      self.word = word_table(self, 'word', self.vocab_size, self.width, uniform(1.0))
    self.forwards = [self._layer() for _ in range(self.layers)]
    self.backwards = [self._layer() for _ in range(self.layers)]
    if self.words:
      self.softmax = word_table(self, 'softmax', self.scored, self.width, normal)
      self.head = WordHead(self.scored, normal, dtype)
    self.dropped = Dropout(self.dropout)

  @property
  def scored(self) -> int:
    """Number of the words of the softmax."""
    return self.outputs or self.vocab_size

  @nn.nowrap
  def _layer(self, **fields: Any) -> LSTM:
    return LSTM(
      self.cell, glorot, projection=self.width, cell_clip=self.cell_clip, forget_bias=1.0,
      projection_clip=self.projection_clip, segment=self.segment, dtype=jnp.dtype(self.dtype),
      **fields,
    )  # fmt: skip

  def __call__(
    self, batch: Batch, carry: States | tuple[()] = (), noise: Noise | None = None
  ) -> dict[str, Any]:
    """Runs both directions, each on its own text: reads token or character, and example, of both;
    arguments as of `StreamModel`. Returns dict with word and out_word, `Scores` at every column of
    the text that is read forwards and of the other one; and carry."""
    states = carry or self.carry(len(batch['token_BT']))
    scores, after = {}, ()
    for way, prefix, letter in ((0, '', 'T'), (1, 'out_', 'U')):
      x_BTD = self._words(batch, prefix, letter)
      real_BT = batch[f'{prefix}example_B{letter}'] > 0
      (*_, x_BTD), found = self._run(way, x_BTD, states, real_BT, noise)
      x_BTD = self.dropped(x_BTD, fork(noise, f'{way} end'))
      scores[f'{prefix}word'], after = self.head(x_BTD, self.softmax), after + found
    return dict(scores, carry=after)

  def read(self, batch: Batch, hidden: bool = True) -> dict[str, Any]:
    """Reads each text in both directions, from states of zeros. Returns dict with last_BTD, [B, T,
    2 * width], forwards first; with hidden also hidden_LBTD of the layers, and embedded_BTD, the
    words twice."""
    layers_LBTD, _ = self.both(batch, self.carry(len(batch['token_BT'])))
    more = dict(hidden_LBTD=layers_LBTD[1:], embedded_BTD=layers_LBTD[0])
    return dict(last_BTD=layers_LBTD[-1]) | (more if hidden else {})

  def word_scores(self, batch: Batch) -> Any:
    """Raises UserError: each direction scores the words of a text of its own."""
    raise UserError(
      'ELMo predicts a word from one side of it, and neither fills in blanks nor scores texts: '
      'expected a masked or causal model; this one embeds texts'
    )

  def both(self, batch: Batch, carry: States) -> tuple[Array, States]:
    """Reads each text in both directions. Returns the words and what every layer gives, [layers +
    1, B, T, 2 * width], and the states behind it: the original keeps them from text to text."""
    x_BTD, real_BT = self._words(batch, '', 'T'), batch['example_BT'] > 0
    found, after = [], ()
    for way in (0, 1):
      turn = (lambda x: jnp.flip(x, 1)) if way else (lambda x: x)
      outputs, states = self._run(way, turn(x_BTD), carry, turn(real_BT), None)
      found, after = [*found, jnp.stack([turn(y_BTD) for y_BTD in outputs])], after + states
    return jnp.concatenate(found, -1), after

  def _words(self, batch: Batch, prefix: str, letter: str) -> Array:
    if self.characters:
      x_BTD = self.spelled(batch[f'{prefix}character_B{letter}W'])
    else:
      x_BTD = look_up(self.word, batch[f'{prefix}token_B{letter}'])
    x_BTD = x_BTD.astype(jnp.dtype(self.dtype))
    return nn.with_logical_constraint(x_BTD, ('batch', 'length', 'embed_act'))

  def _run(
    self, way: int, x_BTD: Array, states: States, real_BT: Array, noise: Noise | None
  ) -> tuple[list[Array], States]:
    """Returns input and outputs of a direction's layers, and its states; is given those of both."""
    found, after, states = [x_BTD], [], states[way * self.layers :]
    for number, layer in enumerate((self.forwards, self.backwards)[way]):
      x_BTD = self.dropped(x_BTD, fork(noise, f'{way} {number}'))
      y_BTD, state = layer(x_BTD, states[number], real_BT)
      x_BTD = x_BTD + y_BTD if number and self.skips else y_BTD
      found, after = [*found, x_BTD], [*after, state]
    return found, tuple(after)

  @nn.nowrap
  def carry(self, rows: int, start: Start = 'empty') -> States:
    """Returns the state of each layer forwards, then of each backwards: zeros."""
    return (self._layer(parent=None).first(rows),) * 2 * self.layers

  @property
  def spells(self) -> int:
    """Characters of a word."""
    return self.characters

  @property
  def output_heads(self) -> tuple[Head, ...]:
    """The head for words, and those of labels."""
    words = (Head('word', 'word', self.scored, 'softmax', 'head'),) * self.words
    return words + tuple(head for head in declared(self, through='mix') if head.kind != 'word')

  @nn.nowrap
  def flops(self, batch: Batch) -> float:
    """Counts model FLOPs, see `Model.flops`: the cells and projections at real tokens, the words at
    targets."""
    real = float(sum((np.asarray(batch[x]) > 0).sum() for x in ('example_BT', 'out_example_BU')))
    predicted = float(sum(np.sum(batch[x]) for x in ('weight_BT', 'weight_BU')))
    words = flops_lib.head_flops(predicted, self.width * self.scored)
    return flops_lib.head_flops(real, self._direction + self._spelling) + words

  @property
  def _direction(self) -> int:
    """Entries of the matrices of a direction: four gates of the input and of the projected output,
    and the projection."""
    return self.layers * self.cell * self.width * (4 + 4 + 1)

  @property
  def _spelling(self) -> int:
    """Entries of the matrices that a word meets before the layers."""
    own = self.character_width, self.filters, self.highways, self.width
    return char_cnn.entries(self.characters, *own) if self.characters else 0


class Features(ELMo, LabelModel, kw_only=True):
  """ELMo without its softmax: the model of the objectives of fine-tuning. No gradient enters its
  layers; the optimizer must freeze them too, since weight decay needs none."""

  one_text = True

  @property
  def batch_statistics(self) -> bool:
    """True if layers are normalised over the batch."""
    return self.mix_norm

  @nn.compact
  def __call__(self, batch: Batch, noise: Noise | None = None, hidden: bool = False):
    """Runs the model, see `LabelModel`, from states of zeros."""
    layers_LBTD, _ = self.both(batch, self.carry(len(batch['token_BT'])))
    layers_LBTD = jax.lax.stop_gradient(layers_LBTD)
    out: dict[str, Any] = dict(last_BTD=layers_LBTD[-1], label_BGC={}, token_label_BTC={})
    if self.labels or self.token_labels:
      wide_LBTD = layers_LBTD.astype(jnp.float32)
      if self.mix_norm:
        wide_LBTD = mix.normalized(wide_LBTD, batch['example_BT'] > 0)
      x_BTD = mix.mixed(self, wide_LBTD)
      texts = pool(x_BTD, batch, 'mean') if self.labels else None
      out |= label_heads(self, glorot, noise, texts, x_BTD if self.token_labels else None)
    if hidden:
      out |= dict(hidden_LBTD=layers_LBTD[1:], embedded_BTD=layers_LBTD[0])
    return out

  def read(self, batch: Batch, hidden: bool = True) -> dict[str, Any]:
    """Returns what `__call__` does."""
    return self(batch, hidden=hidden)

  @nn.nowrap
  def flops(self, batch: Batch) -> float:
    """Counts model FLOPs, see `Model.flops`: of the layers those of a forward pass."""
    real = flops_lib.real(batch)
    size = lambda labels: 2 * self.width * sum(classes for _, classes in labels)
    layers = flops_lib.head_flops(real, 2 * self._direction + self._spelling) / 3
    heads = (flops_lib.examples(batch), size(self.labels)), (real, size(self.token_labels))
    return layers + sum(flops_lib.head_flops(*each) for each in heads)


def make(config) -> ELMo:
  """Builds the model from `config.model`: without words the one for features. Raises UserError:
  more words to score than there are, labels beside them, or fewer characters than a filter
  reads."""
  fields = given_fields(ELMo, config)
  if fields['words'] and (fields['labels'] or fields['token_labels']):
    raise UserError(
      'config.model: ELMo with a softmax has no labels: expected words=False, or labels=() and '
      'token_labels=()'
    )
  if 0 < fields['vocab_size'] < fields['outputs']:
    raise UserError(
      f'config.model.outputs: got {fields["outputs"]}, but the vocabulary has '
      f'{fields["vocab_size"]} words: expected as many at most, or 0 for all'
    )
  longest = max(length for length, _ in fields['filters'])
  if 0 < fields['characters'] < longest:
    raise UserError(
      f'config.model.characters: got {fields["characters"]}, fewer than the {longest} that a '
      'filter reads: raise it, or leave that filter out'
    )
  return (ELMo if fields['words'] else Features)(**fields)


MODEL = Factory(options_of(ELMo), make)
