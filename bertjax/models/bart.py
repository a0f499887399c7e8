"""BART: an encoder reads a damaged text, a decoder writes it whole.

Lewis et al. 2020 (fairseq, models/bart). A transformer with norms behind what they serve, and one
behind the embeddings of each stack; each stack has a table of positions of its own, both have the
words, and so has the output, which has no bias. With the embeddings multiplied by sqrt(D) it is
MASS's (Song et al. 2019; MASS-summarization).
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertjax.field_types import Count, Fraction, IdOfPad, Positive
from bertjax.kernels.cross_entropy import Scores
from bertjax.kernels.dropout import Noise, fork
from bertjax.kernels.look_up import look_up
from bertjax.models.layers import pad_id
from bertjax.models.layers.basic import (
  Dropout,
  Norm,
  given_fields,
  options_of,
  small_table,
  word_table,
  zeroed,
)
from bertjax.models.layers.encoder import Encoder
from bertjax.models.layers.encoder_decoder import EncoderDecoder, Side
from bertjax.models.layers.heads import WordHead
from bertjax.types import Array, Factory

OFFSET = 2  # rows of a table of positions that nobody reads: fairseq counts from the pad's id + 1

# test, tiny: ours. base, large: the paper, section 4; fairseq/models/bart/model.py.
SIZES: dict[str, dict[str, int]] = {
  'test': dict(layers=2, width=64, heads=8, ffn=256, positions=128),
  'tiny': dict(layers=3, width=128, heads=4, ffn=512, positions=128),
  'base': dict(layers=6, width=768, heads=12, ffn=3072, positions=1024),
  'large': dict(layers=12, width=1024, heads=16, ffn=4096, positions=1024),
}


class BART(EncoderDecoder, kw_only=True):
  """The model of `objectives/seq2seq.py`; fields are `config.model`.

  Attributes:
    layers: of the encoder, and of the decoder.
    positions: of the longest text.
    scaled: whether word vectors are multiplied by sqrt(D).
    dropout, inner_dropout, attention_dropout: of embeddings and of what layers add, within the
      feed-forward, of the probabilities.
    init_std: of tables and kernels.
    zero_row: id whose word vector starts at zero, or None; -1: that of [PAD].
  """

  positions: Count
  scaled: bool
  inner_dropout: Fraction
  attention_dropout: Fraction
  init_std: Positive
  zero_row: IdOfPad | None = None

  framed = True

  def setup(self):
    init, dtype = jax.nn.initializers.normal(self.init_std), jnp.dtype(self.dtype)
    layer: dict[str, Any] = dict(
      heads=self.heads, ffn=self.ffn, activation=self.activation, norm_eps=self.norm_eps,
      dropout=self.dropout, inner_dropout=self.inner_dropout,
      attention_dropout=self.attention_dropout, initializer=init, dtype=dtype,
    )  # fmt: skip

    def places(name: str) -> Array:
      shape = (self.positions + OFFSET, self.width)
      return small_table(self, name, 'position', shape, init)

    self.word = word_table(self, 'word', self.vocab_size, self.width, zeroed(init, self.zero_row))
    self.encoder_place, self.decoder_place = places('encoder_position'), places('decoder_position')
    self.encoder_norm, self.decoder_norm = (Norm(self.norm_eps, dtype) for _ in range(2))
    self.encoder = Encoder(self.layers, self.remat, layer)
    self.decoder = Encoder(self.layers, self.remat, layer | dict(cross=True))
    self.head = WordHead(self.vocab_size, init, dtype, word_bias=False)
    self.dropped = Dropout(self.dropout)

  def embed(self, side: Side, token_BT: Array, position_BT: Array, noise: Noise | None) -> Array:
    """Adds words and positions up; see `EncoderDecoder`."""
    place_XD, norm = self.decoder_place, self.decoder_norm
    if side == 'first':
      place_XD, norm = self.encoder_place, self.encoder_norm
    x_BTD = look_up(self.word, token_BT) * (self.width**0.5 if self.scaled else 1.0)
    x_BTD = norm(x_BTD + place_XD[position_BT + OFFSET])
    x_BTD = self.dropped(x_BTD, fork(noise, f'{side} words'))
    return nn.with_logical_constraint(x_BTD, ('batch', 'length', 'embed_act'))

  def bias(self, side: Side, columns: int) -> None:
    """Nothing is added to the scores."""

  def end(self, side: Side, x_BTD: Array, noise: Noise | None) -> Array:
    """Returns the last layer's output as it is."""
    return x_BTD

  def scores(self, x_BUD: Array) -> Scores:
    """Scores the words."""
    return self.head(x_BUD, self.word)


def make(config) -> BART:
  """Builds the model from `config.model`. Raises UserError: see `given_fields`; an id that only
  the vocabulary knows."""
  fields = given_fields(BART, config)
  pad_id.check(0, fields['zero_row'])
  return BART(**fields)


MODEL = Factory(options_of(BART), make)
