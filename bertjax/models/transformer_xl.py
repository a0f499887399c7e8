"""Transformer-XL and the vanilla models it was compared with: causal transformers over a stream.

Dai et al. 2019; kimiyoung/transformer-xl, pytorch/mem_transformer.py. A layer sees its memory, the
inputs it had in earlier batches, and what of the batch came before. The original keeps one memory
more, of the last layer's output, which nothing reads.

Differences from the original: the dropout of the position table is the same for all microbatches,
and absolute positions (attn_type 2 and 3) take no memory, in which two tokens would share one.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bertjax.errors import UserError, choose
from bertjax.field_types import Count, Fraction, Natural, NonNegative, Positive
from bertjax.kernels.dropout import Noise
from bertjax.kernels.look_up import look_up
from bertjax.kernels.relative_attention import Relative
from bertjax.models.layers import adaptive
from bertjax.models.layers import flops as flops_lib
from bertjax.models.layers import memory as memory_lib
from bertjax.models.layers.adaptive import AdaptiveWords
from bertjax.models.layers.attention import Attention
from bertjax.models.layers.basic import (
  INITS,
  Dropout,
  Init,
  Initializer,
  given_fields,
  options_of,
  param,
  word_table,
)
from bertjax.models.layers.block import Block, Context
from bertjax.models.layers.contracts import Remembering, Sized, StreamModel, WritingModel
from bertjax.models.layers.encoder import scanned
from bertjax.models.layers.heads import Head, WordHead, all_scores, at_targets
from bertjax.models.layers.memory import Memory
from bertjax.models.layers.positions import DistanceTable, query_biases, sinusoids
from bertjax.types import Array, Batch, Factory, Variables

PROJECTION_STD = 0.01  # proj_init_std, of the adaptive softmax
# In the order of the original's attn_type, 0 to 3.
AttentionKind = Literal['relative', 'shaw', 'absolute', 'deeper']


class Layer(Block):
  """A block that knows distances; fields besides those of `Block` as in `TransformerXL`."""

  attention: AttentionKind = 'relative'
  learned_positions: int = 0

  def entered(self, x_BTD: Array) -> Array:
    """Adds learned positions to the layer's input, if attention is 'deeper'."""
    if self.attention != 'deeper':
      return x_BTD
    shape = (self.learned_positions, x_BTD.shape[-1])
    table = param(self, 'positions', ('position', 'embed'), shape, self.initializer)
    return x_BTD + table[None, self.learned_positions - x_BTD.shape[1] :].astype(self.dtype)

  def relative(self, attention: Attention, context: Context, keys: int) -> Relative:
    """Returns the terms by distance of this kind of attention."""
    shape = (self.heads, self.head_size)
    if context.table_RD is not None:
      u_NH, w_NH = context.biases or query_biases(self, 'uw', shape, self.initializer)
      r_RNH = attention.position(context.table_RD)
      return Relative(r_RNH, u_NH=u_NH, w_NH=w_NH, far=keys - 1)
    if self.attention != 'shaw':
      return Relative()
    # A row per distance, and beyond them the last one again. The original adds this bias to the
    # product before it is scaled, as all of the score.
    rows, axes = self.learned_positions, ('position', 'heads', 'head')
    place_R, zeros = np.minimum(np.arange(keys - 1, -1, -1), rows - 1), jax.nn.initializers.zeros
    r_RNH = param(self, 'positions', axes, (rows, *shape), self.initializer)
    bias_RN = param(self, 'position_bias', axes[:2], (rows, self.heads), zeros)
    u_NH = param(self, 'u', axes[1:], shape, self.initializer)
    bias_NR = bias_RN[place_R].T * self.head_size**-0.5
    return Relative(r_RNH[place_R], bias_NR, u_NH=u_NH, far=keys - 1)


class TransformerXL(Sized, Remembering, StreamModel, WritingModel, kw_only=True):
  """The model of `objectives/lm.py`; fields are `config.model`.

  Attributes:
    cutoffs, div_val: of adaptive inputs and softmax, see `AdaptiveWords`; () and 1: one table.
    head_size: H; N * H need not be D.
    attention: 'relative' is Transformer-XL; 'shaw' has a learned vector and bias
      for each distance and layer (Shaw et al. 2018); 'absolute' adds sinusoids to the embedding
      (Vaswani et al. 2017); 'deeper' adds learned positions to every layer's input (Al-Rfou et al.
      2018).
    learned_positions: rows of the tables of 'shaw' and 'deeper'; 0: none.
    mem_len: M, places of memory; 0: none.
    clamp_len: the largest distance told apart; 0: all are.
    same_length: every query sees mem_len keys, itself included, and none that are further.
    untie_r: every layer has its own query biases.
    pre_norm: norms stand before attention and feed-forward, not behind; none follows the last.
    norm_std: standard deviation of the norms' scales around 1 at the start.
  """

  cutoffs: tuple[Count, ...] = ()
  div_val: Count = 1
  head_size: Count
  attention: AttentionKind = 'relative'
  learned_positions: Natural = 0
  mem_len: Natural
  clamp_len: Natural = 0
  same_length: bool = False
  untie_r: bool
  pre_norm: bool = False
  norm_std: NonNegative
  attention_dropout: Fraction
  initializer: Initializer
  init_std: Positive

  @nn.compact
  def __call__(
    self,
    batch: Batch,
    carry: Memory | tuple[()] = (),
    noise: Noise | None = None,
    hidden: bool = False,
  ):
    """Runs the layers and the head, see `StreamModel`. Reads token and example."""
    dtype, init = jnp.dtype(self.dtype), INITS[self.initializer](self.init_std)
    embed, scores = self._words(init, dtype)
    x_BTD = embed(batch['token_BT']) * self.width**0.5
    if self.attention == 'absolute':
      # Counted from the last token, as the original's tables are.
      place_T = np.arange(x_BTD.shape[1] - 1, -1, -1)
      x_BTD = x_BTD + jnp.asarray(sinusoids(place_T, self.width, self.clamp_len), dtype)[None]
    x_BTD = Dropout(self.dropout, name='dropout')(x_BTD, noise)
    embedded_BTD = x_BTD = nn.with_logical_constraint(x_BTD, ('batch', 'length', 'embed_act'))
    x_BTD, (hidden_BLMD, hidden_LBTD) = self._layers(x_BTD, batch, carry, noise, hidden)
    last_BTD = Dropout(self.dropout, name='output_dropout')(x_BTD, noise)
    carry = memory_lib.remembered(carry, hidden_BLMD, batch['example_BT'])
    out: dict[str, Any] = dict(word=scores(last_BTD), last_BTD=last_BTD, carry=carry)
    if hidden:
      out |= dict(hidden_LBTD=hidden_LBTD, embedded_BTD=embedded_BTD)
    return out

  @nn.nowrap
  def for_writing(self, variables: Variables) -> Variables:
    """Returns the variables as they are: `start` and `step` run the whole model."""
    return variables

  def start(self, batch: Batch, room: int) -> tuple[Array, Memory]:
    """Reads prompts; see `WritingModel`. The text so far is a memory that nothing falls out of, so
    each step projects all of it again. Raises UserError: a model without distances."""
    if self.attention not in ('relative', 'shaw'):
      raise UserError(
        f'config.model.attention={self.attention!r} names tokens by their place in a row, which a '
        "text that goes on does not keep: expected 'relative' or 'shaw' to write"
      )
    rows, columns = batch['token_BT'].shape
    return self._written(batch, self.clone(mem_len=columns + room).carry(rows))

  def step(self, token_B: Array, text: Memory) -> tuple[Array, Memory]:
    """Reads a token more of each row; see `WritingModel`."""
    token_BT = token_B[:, None]
    return self._written(dict(token_BT=token_BT, example_BT=jnp.ones_like(token_BT)), text)

  def _written(self, batch: Batch, text: Any) -> tuple[Array, Memory]:
    out = self(batch, text)
    last_B1 = jnp.full_like(batch['token_BT'][:, :1], batch['token_BT'].shape[1] - 1)
    scores = at_targets(out['word'], dict(target_pos_BP=last_B1))
    return all_scores(scores)[:, 0], out['carry']

  def _words(self, init: Init, dtype: Any) -> tuple[Callable, Callable]:
    """(token_BT -> x_BTD, h_BPD -> scores), over the same tables."""
    if self.cutoffs:
      words = AdaptiveWords(
        self.vocab_size, self.width, self.cutoffs, self.div_val, init, PROJECTION_STD, dtype,
        name='words',
      )  # fmt: skip
      return words.embed, words.scores
    word_VE = word_table(self, 'word', self.vocab_size, self.width, init)
    head = WordHead(self.vocab_size, init, dtype, name='head')
    embed = lambda token_BT: look_up(word_VE, token_BT).astype(dtype)
    return embed, lambda h_BPD: head(h_BPD, word_VE)

  def _layers(self, x_BTD: Array, batch: Batch, memory, noise, hidden: bool) -> Any:
    init, dtype = INITS[self.initializer](self.init_std), jnp.dtype(self.dtype)
    window = self.mem_len if self.same_length else None
    mask = memory_lib.causal(memory, batch['example_BT'], window)
    table_RD, biases = None, None
    if self.attention == 'relative':
      distance_R = np.arange(mask.example_k_BS.shape[1] - 1, -1, -1)
      table = DistanceTable(self.dropout, dtype, name='table')
      table_RD = table(distance_R, self.width, self.clamp_len, noise)
      if not self.untie_r:
        biases = query_biases(self, 'uw', (self.heads, self.head_size), init)
    layer: dict[str, Any] = dict(
      heads=self.heads, head_size=self.head_size, ffn=self.ffn, activation=self.activation,
      attention=self.attention, positions=self.attention == 'relative', attention_bias=False,
      learned_positions=self.learned_positions, nested=True, norm_eps=self.norm_eps,
      norm_std=self.norm_std, norm_place='before' if self.pre_norm else 'after',
      dropout=self.dropout, inner_dropout=self.dropout, attention_dropout=self.attention_dropout,
      initializer=init, hidden=hidden, dtype=dtype,
    )  # fmt: skip
    stack = scanned(self, Layer, noise)(**layer, name='layers')
    context = Context(mask, table_RD=table_RD, biases=biases)
    hidden_BLMD = memory.hidden_BLMD if memory else None
    return stack(x_BTD, context, noise, hidden_BLMD, jnp.arange(self.layers))

  @nn.nowrap
  def flops(self, batch: Batch) -> float:
    """Counts model FLOPs with a full memory, see `Model.flops`."""
    real_BT = np.asarray(batch['example_BT']) > 0
    rows, length = real_BT.shape
    real, heads = float(real_BT.sum()), self.heads * self.head_size
    count = flops_lib.head_flops(real, 4 * self.width * heads + 2 * self.width * self.ffn)
    # No gradient reaches the memory or the table of distances: their projections cost 4, not 6.
    count += flops_lib.head_flops(rows * self.mem_len * 2 / 3, 2 * self.width * heads)
    if self.attention == 'relative':
      count += flops_lib.head_flops((length + self.mem_len) * 2 / 3, self.width * heads)
    seen_T = np.arange(1, length + 1) + self.mem_len
    if self.same_length:
      seen_T = np.minimum(seen_T, self.mem_len)
    by_distance = self.attention in ('relative', 'shaw')
    count += (18.0 if by_distance else 12.0) * heads * float((real_BT * seen_T).sum())
    return self.layers * count + self._head_flops(batch)

  @nn.nowrap
  def _head_flops(self, batch: Batch) -> float:
    """Returns the FLOPs of the head, which has an entry for each cluster, at every target, and of
    each cluster's words at the targets that are among them."""
    weight_BP, target_BP = np.asarray(batch['weight_BP']), np.asarray(batch['target_BP'])
    total = 0.0
    for i, (first, last) in enumerate(pairwise((0, *self.cutoffs, self.vocab_size))):
      inside_BP = (target_BP >= first) & (target_BP < last) if i else True
      entries = last - first + (0 if i else len(self.cutoffs))
      width = self.width // self.div_val**i
      total += flops_lib.head_flops(float(np.sum(weight_BP * inside_BP)), width * entries)
    return total

  @property
  def output_heads(self) -> tuple[Head, ...]:
    """The head for words."""
    return (Head('word', 'word', self.vocab_size, 'words' if self.cutoffs else 'head'),)

  @nn.nowrap
  def alone(self) -> 'TransformerXL':
    """Returns the model without memory, whose queries see all that is before them."""
    return self.clone(mem_len=0, same_length=False)

  @property
  def room(self) -> int | None:
    """Columns of the longest row: learned positions, or mem_len with same_length, or None."""
    if self.attention == 'deeper':
      return self.learned_positions
    return self.mem_len if self.same_length else None


def make(config) -> TransformerXL:
  """Builds the model from `config.model`. Raises UserError: an unknown attention, an odd width, a
  memory for absolute positions, learned positions where none are read or none where they are, or
  same_length without memory."""
  fields = given_fields(TransformerXL, config)
  attention, mem_len = fields['attention'], fields['mem_len']
  choose(attention, get_args(AttentionKind), 'config.model.attention')
  if fields['cutoffs']:
    adaptive.check(*(fields[key] for key in ('vocab_size', 'width', 'cutoffs', 'div_val')))
  elif fields['div_val'] != 1:
    raise UserError(
      f'config.model.div_val={fields["div_val"]} narrows the clusters of config.model.cutoffs, and '
      'there are none: set it to 1'
    )
  if fields['width'] % 2:
    raise UserError(
      f'model.width: sinusoids come in pairs, expected an even width, got {fields["width"]}'
    )
  if mem_len and attention in ('absolute', 'deeper'):
    raise UserError(
      f'config.model.attention={attention!r} names two tokens of memory and input by one position: '
      f"expected config.model.mem_len=0, got {mem_len}; memory needs 'relative' or 'shaw'"
    )
  learns, rows = attention in ('shaw', 'deeper'), fields['learned_positions']
  if learns != bool(rows):
    raise UserError(
      f'config.model.attention={attention!r} learns {"" if learns else "no "}positions, got '
      f'config.model.learned_positions={rows}'
    )
  if fields['same_length'] and not mem_len:
    raise UserError(
      'config.model.same_length shows every query mem_len keys, itself included: expected '
      'config.model.mem_len >= 1, got 0'
    )
  return TransformerXL(**fields)


MODEL = Factory(options_of(TransformerXL), make)
