"""The frame of models with an encoder and a decoder: T5, BART.

A model says how a text enters a stack (`embed`), what the scores get by distance (`bias`), how a
stack ends (`end`) and what the words score (`scores`). Reading, training and writing are here.
"""

from typing import Any, Literal

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from bertjax.kernels.cross_entropy import Scores, logits
from bertjax.kernels.dropout import Noise
from bertjax.models.layers import flops as flops_lib
from bertjax.models.layers.attend import example_mask, second_text
from bertjax.models.layers.block import Context
from bertjax.models.layers.cache import Reading, Writing, before, empty
from bertjax.models.layers.contracts import PairModel, Sized
from bertjax.models.layers.encoder import ended
from bertjax.models.layers.heads import Head
from bertjax.types import Array, Batch

Side = Literal['first', 'second']  # text, and the stack that reads it


class EncoderDecoder(Sized, PairModel, kw_only=True):
  """Has of its `setup` the stacks encoder and decoder, and perhaps the field gated."""

  has_segments = False

  def embed(self, side: Side, token_BT: Array, position_BT: Array, noise: Noise | None) -> Array:
    """Returns what enters a stack, x_BTD, after its dropout."""
    raise NotImplementedError

  def bias(self, side: Side, columns: int) -> Array | None:
    """Returns bias_NR of a stack's scores, see `positions.bias_table`; None: there is none."""
    raise NotImplementedError

  def end(self, side: Side, x_BTD: Array, noise: Noise | None) -> Array:
    """Returns the output of a stack from that of its last layer."""
    raise NotImplementedError

  def scores(self, x_BUD: Array) -> Scores:
    """Returns the scores of the vocabulary from the decoder's output."""
    raise NotImplementedError

  @property
  def head_width(self) -> int:
    """H."""
    return self.width // self.heads

  def encode(self, batch: Batch, noise: Noise | None, hidden: bool = False) -> dict[str, Any]:
    """Returns last_BTD, what the encoder makes of the first text; hidden_LBTD and embedded_BTD if
    asked."""
    x_BTD = self.embed('first', batch['token_BT'], batch['position_BT'], noise)
    context = Context(example_mask(batch, 'example'), bias_NR=self.bias('first', x_BTD.shape[1]))
    y_BTD, hidden_LBTD = self.encoder(x_BTD, context, noise, hidden=hidden)
    out = dict(last_BTD=self.end('first', y_BTD, noise))
    if hidden:
      out |= dict(hidden_LBTD=ended(hidden_LBTD, out['last_BTD']), embedded_BTD=x_BTD)
    return out

  def __call__(self, batch: Batch, noise: Noise | None = None, hidden: bool = False):
    """Runs the model, see `PairModel`. Raises UserError: more columns than positions."""
    columns = max(batch['token_BT'].shape[1], batch['out_token_BU'].shape[1])
    self.require_room(columns, 'config.length or config.data.task.target_length')
    out, token_BU = self.encode(batch, noise, hidden), batch['out_token_BU']
    context = second_text(batch, out['last_BTD'], self.bias('second', token_BU.shape[1]))
    x_BUD = self.embed('second', token_BU, batch['out_position_BU'], noise)
    x_BUD, hidden_LBUD = self.decoder(x_BUD, context, noise, hidden=hidden)
    x_BUD = self.end('second', x_BUD, noise)
    out |= dict(word=self.scores(x_BUD), out_last_BUD=x_BUD)
    return out | (dict(out_hidden_LBUD=ended(hidden_LBUD, x_BUD)) if hidden else {})

  def read(self, batch: Batch, hidden: bool = True) -> dict[str, Any]:
    """Runs the model, or the encoder alone on a batch without a second text."""
    run = self if 'out_token_BU' in batch else self.encode
    return run(batch, None, hidden)

  def start(self, batch: Batch, room: int) -> tuple[Array, Writing]:
    """Reads the first text and what the second begins with; see `WritingModel`."""
    begun_BU, example_BT = batch['out_token_BU'], batch['example_BT']
    rows, columns = example_BT.shape
    places_BT = jnp.broadcast_to(jnp.arange(columns)[None], (rows, columns))
    read_BTD = self.encode(dict(batch, position_BT=places_BT), None)['last_BTD']
    given = begun_BU.shape[1]
    caches = empty(rows, self.layers, room + given, self.heads, self.head_width, read_BTD.dtype)
    zeros, none_BS = jnp.zeros(rows, jnp.int32), jnp.zeros((rows, room + given), bool)
    text, scores_BV = Writing(caches, none_BS, zeros, zeros, example_BT > 0), None
    for column in range(given):
      scores_BV, text = self._written(begun_BU[:, column], text, None if column else read_BTD)
    assert scores_BV is not None
    return scores_BV, text

  def step(self, token_B: Array, text: Writing) -> tuple[Array, Writing]:
    """Writes a token of each row; see `WritingModel`."""
    return self._written(token_B, text, None)

  def _written(self, token_B: Array, text: Writing, read_BTD: Array | None):
    place, columns = text.place_B[0], text.real_BS.shape[1]
    real_BS = text.real_BS.at[:, place].set(True)
    bias_NR, bias_N1S = self.bias('second', columns), None
    if bias_NR is not None:
      distance_S = place - jnp.arange(columns)
      bias_N1S = bias_NR[:, columns - 1 - jnp.maximum(distance_S, 0)][:, None]
    assert text.other_real_BS is not None
    reading = Reading(
      place, before(real_BS, place, 1), bias_N1S, text.other_real_BS[:, None], read_BTD
    )
    x_B1D = self.embed('second', token_B[:, None], text.position_B[:, None], None)
    x_B1D, caches = self.decoder(x_B1D, reading, None, text.layers)
    scores_BV = logits(self.scores(self.end('second', x_B1D, None)))[:, 0]
    later = dict(place_B=text.place_B + 1, position_B=text.position_B + 1)
    return scores_BV, text._replace(layers=caches, real_BS=real_BS, **later)

  @property
  def output_heads(self) -> tuple[Head, ...]:
    """The words of the second text."""
    return (Head('word', 'word', self.vocab_size, ''),)

  @nn.nowrap
  def flops(self, batch: Batch) -> float:
    """Counts model FLOPs, see `Model.flops`: both stacks, cross-attention and the words."""
    example_BT, example_BU = batch['example_BT'], batch['out_example_BU']
    own: dict[str, Any] = dict(
      inner=self.heads * self.head_width, gated=getattr(self, 'gated', False)
    )
    each = flops_lib.block_flops(example_BT, self.width, self.ffn, **own)
    each += flops_lib.block_flops(
      example_BU, self.width, self.ffn, causal=True, other_BS=example_BT, **own
    )
    predicted = float(np.sum(batch['weight_BU']))
    return self.layers * each + flops_lib.head_flops(predicted, self.width * self.vocab_size)
