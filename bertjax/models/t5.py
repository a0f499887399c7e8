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

from bertjax.field_types import Count
from bertjax.kernels.cross_entropy import Scores
from bertjax.kernels.dropout import Noise, fork
from bertjax.kernels.look_up import look_up
from bertjax.models.layers.basic import (
  Dropout,
  FanIn,
  Norm,
  affine_inits,
  given_fields,
  options_of,
  word_table,
)
from bertjax.models.layers.encoder import Encoder
from bertjax.models.layers.encoder_decoder import EncoderDecoder, Side
from bertjax.models.layers.heads import Head, WordHead
from bertjax.models.layers.positions import bias_table
from bertjax.types import Array, Factory

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


class T5(EncoderDecoder, kw_only=True):
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

  def setup(self):
    layer: dict[str, Any] = dict(
      heads=self.heads, head_size=self.head_size, ffn=self.ffn, activation=self.activation,
      gated=self.gated, scale=1.0, norm='rms_norm', norm_bias=False, norm_eps=self.norm_eps,
      norm_place='before', attention_bias=False, ffn_bias=False, dropout=self.dropout,
      inner_dropout=self.dropout, attention_dropout=self.dropout, initializer=FanIn(),
      dtype=jnp.dtype(self.dtype),
    )  # fmt: skip
    self.encoder = Encoder(self.layers, self.remat, layer)
    self.decoder = Encoder(self.layers, self.remat, layer | dict(cross=True))
    self.encoder_bias, self.decoder_bias = (Buckets(self.heads, past) for past in (False, True))
    norm = lambda: Norm(self.norm_eps, jnp.dtype(self.dtype), kind='rms_norm', bias=False)
    self.encoder_norm, self.decoder_norm = norm(), norm()
    self.word = self._table('word', jax.nn.initializers.normal(1.0))
    self.out = None if self.tied else self._table('out', affine_inits(FanIn(), self.width)[0])
    factor = self.width**-0.5 if self.tied else 1.0
    dtype = jnp.dtype(self.dtype)
    self.head = WordHead(self.vocab_size, FanIn(), dtype, word_bias=False, factor=factor)
    self.dropped = Dropout(self.dropout)

  def _table(self, name: str, init: Any) -> Array:
    return word_table(self, name, self.vocab_size, self.width, init)

  def embed(self, side: Side, token_BT: Array, position_BT: Array, noise: Noise | None) -> Array:
    """Looks the words up; see `EncoderDecoder`."""
    del position_BT  # distances tell places
    x_BTD = look_up(self.word, token_BT).astype(jnp.dtype(self.dtype))
    x_BTD = self.dropped(x_BTD, fork(noise, f'{side} words'))
    return nn.with_logical_constraint(x_BTD, ('batch', 'length', 'embed_act'))

  def bias(self, side: Side, columns: int) -> Array:
    """Returns the biases of a stack."""
    return (self.encoder_bias if side == 'first' else self.decoder_bias)(columns)

  def end(self, side: Side, x_BTD: Array, noise: Noise | None) -> Array:
    """Takes the last norm."""
    norm = self.encoder_norm if side == 'first' else self.decoder_norm
    return self.dropped(norm(x_BTD), fork(noise, f'{side} end'))

  def scores(self, x_BUD: Array) -> Scores:
    """Scores the words."""
    return self.head(x_BUD, self.word if self.out is None else self.out)

  @property
  def head_width(self) -> int:
    """H."""
    return self.head_size

  @property
  def output_heads(self) -> tuple[Head, ...]:
    """The words of the second text."""
    return (Head('word', 'word', self.vocab_size, '' if self.tied else 'out'),)


MODEL = Factory(options_of(T5), lambda config: T5(**given_fields(T5, config)))
