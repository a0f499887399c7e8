"""T5: an encoder that reads a text and a decoder that writes another one.

Raffel et al. 2020 (google-research/text-to-text-transfer-transformer; t5x, examples/t5/network.py).
Norms stand before what they serve, take off no mean and have no biases, nor has any other map.
Places are told by a bias of the scores for each distance, in buckets, which all layers share; the
scores are not scaled. Version 1.0 has one table for both texts and the output, whose hidden states
are divided by sqrt(D); 1.1 has gates in the feed-forward and a table of the output of its own.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bertjax.field_types import Count
from bertjax.kernels.cross_entropy import Scores, logits
from bertjax.kernels.dropout import Noise, fork
from bertjax.kernels.look_up import look_up
from bertjax.models.layers import flops as flops_lib
from bertjax.models.layers.attend import example_mask, second_text
from bertjax.models.layers.basic import (
  Dropout,
  FanIn,
  Norm,
  affine_inits,
  given_fields,
  options_of,
  word_table,
)
from bertjax.models.layers.block import Context
from bertjax.models.layers.cache import Reading, Writing, before, empty
from bertjax.models.layers.contracts import PairModel, Sized
from bertjax.models.layers.encoder import Encoder, ended
from bertjax.models.layers.heads import Head, WordHead
from bertjax.models.layers.positions import bias_table
from bertjax.types import Batch, Factory

Array = jax.Array

# test, tiny: ours. The others: t5x, examples/t5/{t5_1_0,t5_1_1}; `xl` and `xxl` are 3B and 11B.
SIZES: dict[str, dict[str, int]] = {
  'test': dict(layers=2, width=64, heads=8, head_size=8, ffn=128),
  'tiny': dict(layers=3, width=128, heads=4, head_size=32, ffn=384),
  'small': dict(layers=6, width=512, heads=8, head_size=64, ffn=2048),
  'base': dict(layers=12, width=768, heads=12, head_size=64, ffn=3072),
  'large': dict(layers=24, width=1024, heads=16, head_size=64, ffn=4096),
  'xl': dict(layers=24, width=1024, heads=32, head_size=128, ffn=16384),
  'xxl': dict(layers=24, width=1024, heads=128, head_size=128, ffn=65536),
}
SIZES_1_1: dict[str, dict[str, int]] = {
  'test': SIZES['test'],
  'tiny': SIZES['tiny'],
  'small': dict(layers=8, width=512, heads=6, head_size=64, ffn=1024),
  'base': dict(layers=12, width=768, heads=12, head_size=64, ffn=2048),
  'large': dict(layers=24, width=1024, heads=16, head_size=64, ffn=2816),
  'xl': dict(layers=24, width=2048, heads=32, head_size=64, ffn=5120),
  'xxl': dict(layers=24, width=4096, heads=64, head_size=64, ffn=10240),
}


class Buckets(nn.Module):
  """The biases of a stack by distance; `causal`: all buckets are of the past."""

  heads: int
  causal: bool

  @nn.compact
  def __call__(self, columns: int) -> Array:
    """Returns bias_NR, see `positions.bias_table`."""
    init = jax.nn.initializers.variance_scaling(1.0, 'fan_avg', 'uniform')
    return bias_table(self, 'buckets', self.heads, columns, init, self.causal)


class T5(Sized, PairModel, kw_only=True):
  """The model; fields are `config.model`.

  Attributes:
    layers: of the encoder, and of the decoder.
    head_size: H; N * H need not be D.
    activation, gated: of the feed-forward; gated, it is multiplied by a second projection.
    tied: the word table is that of the output, too.
    dropout: of embeddings, of what layers add, within the feed-forward, of the probabilities and of
      what the last norms give. Masks are drawn for each column; t5x has one for all.
  """

  head_size: Count
  gated: bool
  tied: bool

  has_segments = False

  def setup(self):
    layer: dict[str, Any] = dict(
      heads=self.heads, head_size=self.head_size, ffn=self.ffn, activation=self.activation,
      gated=self.gated, scale=1.0, norm='rms_norm', norm_bias=False, norm_eps=self.norm_eps,
      norm_place='before', attention_bias=False, ffn_bias=False, dropout=self.dropout,
      inner_dropout=self.dropout, attention_dropout=self.dropout, initializer=FanIn(),
      hidden=False, dtype=jnp.dtype(self.dtype),
    )  # fmt: skip
    self.encoder = Encoder(self.layers, self.remat, layer)
    self.decoder = Encoder(self.layers, self.remat, layer | dict(cross=True))
    self.encoder_bias, self.decoder_bias = (Buckets(self.heads, past) for past in (False, True))
    norm = lambda: Norm(self.norm_eps, jnp.dtype(self.dtype), kind='rms_norm', bias=False)
    self.encoder_norm, self.decoder_norm = norm(), norm()
    self.word = self._table('word', jax.nn.initializers.normal(1.0))
    self.out = None if self.tied else self._table('out', affine_inits(FanIn(), self.width)[0])
    factor = self.width**-0.5 if self.tied else 1.0
    self.head = WordHead(
      self.vocab_size, False, '', self.norm_eps, FanIn(), jnp.dtype(self.dtype), word_bias=False,
      factor=factor,
    )  # fmt: skip
    self.dropped = Dropout(self.dropout)

  def _table(self, name: str, init: Any) -> Array:
    return word_table(self, name, self.vocab_size, self.width, init)

  def _words(self, token_BT: Array, noise: Noise | None, name: str) -> Array:
    x_BTD = look_up(self.word, token_BT).astype(jnp.dtype(self.dtype))
    x_BTD = self.dropped(x_BTD, fork(noise, f'{name} words'))
    return nn.with_logical_constraint(x_BTD, ('batch', 'length', 'embed_act'))

  def encode(self, batch: Batch, noise: Noise | None, hidden: bool = False) -> dict[str, Any]:
    """Returns last_BTD, what the encoder makes of the first text; hidden_LBTD and embedded_BTD if
    asked."""
    x_BTD = self._words(batch['token_BT'], noise, 'first')
    bias_NR = self.encoder_bias(x_BTD.shape[1])
    context = Context(example_mask(batch, 'example'), bias_NR=bias_NR)
    y_BTD, hidden_LBTD = self.encoder(x_BTD, context, noise, hidden=hidden)
    out = dict(last_BTD=self.dropped(self.encoder_norm(y_BTD), fork(noise, 'first end')))
    if hidden:
      out |= dict(hidden_LBTD=ended(hidden_LBTD, out['last_BTD']), embedded_BTD=x_BTD)
    return out

  def __call__(self, batch: Batch, noise: Noise | None = None, hidden: bool = False):
    """Runs the model, see `PairModel`."""
    out = self.encode(batch, noise, hidden)
    bias_NR = self.decoder_bias(batch['out_token_BU'].shape[1])
    context = second_text(batch, out['last_BTD'], bias_NR)
    x_BUD = self._words(batch['out_token_BU'], noise, 'second')
    x_BUD, hidden_LBUD = self.decoder(x_BUD, context, noise, hidden=hidden)
    x_BUD = self.dropped(self.decoder_norm(x_BUD), fork(noise, 'second end'))
    out |= dict(word=self._scores(x_BUD), out_last_BUD=x_BUD)
    return out | (dict(out_hidden_LBUD=ended(hidden_LBUD, x_BUD)) if hidden else {})

  def read(self, batch: Batch, hidden: bool = True) -> dict[str, Any]:
    """Runs the model, or the encoder alone on a batch without a second text."""
    return (
      self(batch, None, hidden) if 'out_token_BU' in batch else self.encode(batch, None, hidden)
    )

  def _scores(self, x_BUD: Array) -> Scores:
    return self.head(x_BUD, self.word if self.out is None else self.out)

  def start(self, batch: Batch, room: int) -> tuple[Array, Writing]:
    """Reads the first text; the second begins with the id 0. See `WritingModel`."""
    read_BTD, rows = self.encode(batch, None)['last_BTD'], len(batch['token_BT'])
    cache = empty(rows, self.layers, room + 1, self.heads, self.head_size, read_BTD.dtype)
    zeros = jnp.zeros(rows, jnp.int32)
    text = Writing(cache, jnp.zeros((rows, room + 1), bool), zeros, zeros, batch['example_BT'] > 0)
    return self._written(zeros, text, read_BTD)

  def step(self, token_B: Array, text: Writing) -> tuple[Array, Writing]:
    """Writes a token of each row; see `WritingModel`."""
    return self._written(token_B, text, None)

  def _written(self, token_B: Array, text: Writing, read_BTD: Array | None):
    place, columns = text.place_B[0], text.real_BS.shape[1]
    real_BS = text.real_BS.at[:, place].set(True)
    distance_S = place - jnp.arange(columns)
    bias_NS = self.decoder_bias(columns)[:, columns - 1 - jnp.maximum(distance_S, 0)]
    assert text.other_real_BS is not None
    reading = Reading(
      place, before(real_BS, place, 1), bias_NS[:, None], text.other_real_BS[:, None], read_BTD
    )
    x_B1D = self._words(token_B[:, None], None, 'second')
    x_B1D, cache = self.decoder(x_B1D, reading, None, text.layers)
    scores_BV = logits(self._scores(self.decoder_norm(x_B1D)))[:, 0]
    text = text._replace(layers=cache, real_BS=real_BS, place_B=text.place_B + 1)
    return scores_BV, text

  @property
  def output_heads(self) -> tuple[Head, ...]:
    """The words of the second text."""
    return (Head('word', 'word', self.vocab_size, '' if self.tied else 'out'),)

  @nn.nowrap
  def flops(self, batch: Batch) -> float:
    """Counts model FLOPs, see `Model.flops`: both stacks, cross-attention and the words."""
    own: dict[str, Any] = dict(inner=self.heads * self.head_size, gated=self.gated)
    example_BT, example_BU = batch['example_BT'], batch['out_example_BU']
    each = flops_lib.block_flops(example_BT, self.width, self.ffn, **own)
    each += flops_lib.block_flops(
      example_BU, self.width, self.ffn, causal=True, other_BS=example_BT, **own
    )
    predicted = float(np.sum(batch['weight_BU']))
    return self.layers * each + flops_lib.head_flops(predicted, self.width * self.vocab_size)


def make(config) -> T5:
  """Builds the model from `config.model`."""
  return T5(**given_fields(T5, config))


MODEL = Factory(options_of(T5), make)
