"""The transformer layer that every model of the house is made of."""

import dataclasses
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from bertjax.kernels.dropout import Noise
from bertjax.kernels.relative_attention import Mask, Relative
from bertjax.models.layers import memory as memory_lib
from bertjax.models.layers.attention import Attention, Rotary
from bertjax.models.layers.basic import ACTIVATIONS, Dense, Dropout, Init, Norm, NormKind
from bertjax.models.layers.cache import Reading
from bertjax.types import Array

NormPlace = Literal['after', 'before']


class Context(NamedTuple):
  """Inputs of all layers besides the hidden states; None where the model does without."""

  mask: Mask  # the keys that each query sees
  rotary: Rotary | None = None  # the turns of queries and keys
  # float32, added to the scores by distance, the furthest first (`positions.bias_table`)
  bias_NR: Array | None = None
  table_RD: Array | None = None  # table of distances, which every layer projects
  # biases of the queries, [N, H] each, if all layers share them
  biases: tuple[Array, ...] | None = None
  # other_BSD, other_mask: another text, for cross-attention, and its mask
  other_BSD: Array | None = None
  other_mask: Mask | None = None


class Block(nn.Module):
  """Attention and feed-forward, each with dropout, a residual and a norm.

  What a model's layers have of their own (terms by distance, a second stream) is a subclass that
  says `relative`, `attend`, `content` or `entered` anew.
  """

  # heads, ffn, head_size: N, F and H; head_size 0 is D / N
  heads: int
  ffn: int
  activation: str  # of the feed-forward, a key of ACTIVATIONS
  norm_eps: float
  # dropout, ffn_dropout, inner_dropout, attention_dropout: of what attention adds, of what the
  # feed-forward adds (None: as dropout), behind its activation, and of the probabilities
  dropout: float
  attention_dropout: float
  # initializer, out_initializer: of kernels and tables; of what is added to the residual, or None
  initializer: Init
  hidden: bool = False  # also return the layer's output
  dtype: Any = jnp.float32
  head_size: int = 0
  # the activation is multiplied by a second projection (Shazeer 2020: GEGLU, SwiGLU)
  gated: bool = False
  inner_dropout: float = 0.0
  ffn_dropout: float | None = None
  # 'after' the sum (Vaswani et al. 2017) or 'before' what is added
  norm_place: NormPlace = 'after'
  # norm, norm_eps, norm_std, norm_bias: see `Norm`
  norm: NormKind = 'layer_norm'
  norm_std: float = 0.0
  norm_bias: bool = True
  # attention_bias, ffn_bias: whether they have biases
  attention_bias: bool = True
  ffn_bias: bool = True
  # this is layer 0 of a model whose residual stream begins behind the first norm (ModernBERT, whose
  # embeddings have a norm and whose layer 0 has none before attention)
  enters: bool = False
  out_initializer: Init | None = None
  # positions, scale: see `Attention`; positions projects `Context.table_RD`
  positions: bool = False
  reuse_len: int | None = None  # number of columns that memory keeps, from the first; None: all
  cross: bool = False  # attention to `Context.other_BSD` between the two
  # the feed-forward's parameters lie in a module of their own, as Transformer-XL's do
  nested: bool = False
  scale: float | None = None

  @nn.compact
  def __call__(
    self, x_BTD: Array, context: Any, noise: Noise | None, memory_BMD: Array | None, layer: Array
  ):
    """Runs the layer number `layer`, with the keys of its dropout or None. Returns x, and (the
    layer's new memory or None, x again or None). memory_BMD are inputs of this layer that are
    remembered; with a `Reading` in place of a `Context`, where columns go on behind those of a
    cache, its `Cache`."""
    if isinstance(context, Reading):
      return self._continued(x_BTD, context, memory_BMD, layer)
    h_BTD = self.content(x_BTD, context)
    new = None if memory_BMD is None else memory_lib.push(memory_BMD, h_BTD, self.reuse_len)
    x_BTD = self.entered(x_BTD)

    def attended(x_BTD: Array, normed) -> Array:
      seen_BSD = normed(memory_lib.join(memory_BMD, self.content(x_BTD, context)))
      attention = self._attention('attention', x_BTD.shape[-1])
      y_BTD = self.attend(attention, x_BTD, seen_BSD, context, noise, layer)
      return Dropout(self.dropout, name='attention_dropout')(y_BTD, noise, layer)

    def crossed(x_BTD: Array, normed) -> Array:
      attention = self._attention('cross_attention', x_BTD.shape[-1])
      other_BSD, mask = no_shorter(context.other_BSD, context.other_mask, x_BTD.shape[1])
      y_BTD = attention(normed(x_BTD), other_BSD, mask, None, None, noise, layer)
      return Dropout(self.dropout, name='cross_attention_dropout')(y_BTD, noise, layer)

    x_BTD = self._sum('attention_norm', x_BTD, attended, self.enters)
    if self.cross:
      x_BTD = self._sum('cross_attention_norm', x_BTD, crossed)
    fed = lambda x_BTD, normed: self._feed_forward(normed(x_BTD), noise, layer)
    x_BTD = self._sum('ffn_norm', x_BTD, fed)
    x_BTD = nn.with_logical_constraint(x_BTD, ('batch', 'length', 'embed_act'))
    return x_BTD, (new, x_BTD if self.hidden else None)

  def _continued(self, x_BTD: Array, reading: Reading, cache: Any, layer: Array):
    """Runs the layer on columns that go on behind those of its cache."""
    assert not self.enters
    found = [cache]
    new_BTD = x_BTD
    if reading.last_only:
      x_BTD, seen_BTS = x_BTD[:, -1:], reading.seen_BTS[:, -1:]
      bias_NTS = None if reading.bias_NTS is None else reading.bias_NTS[:, -1:]
      reading = reading._replace(seen_BTS=seen_BTS, bias_NTS=bias_NTS)

    def attended(x_BTD: Array, normed) -> Array:
      attention = self._attention('attention', x_BTD.shape[-1])
      y_BTD, found[0] = attention.continued(normed(x_BTD), normed(new_BTD), found[0], reading)
      return y_BTD

    def crossed(x_BTD: Array, normed) -> Array:
      attention = self._attention('cross_attention', x_BTD.shape[-1])
      y_BTD, found[0] = attention.crossed(normed(x_BTD), found[0], reading)
      return y_BTD

    x_BTD = self._sum('attention_norm', x_BTD, attended)
    if self.cross:
      x_BTD = self._sum('cross_attention_norm', x_BTD, crossed)
    fed = lambda x_BTD, normed: self._feed_forward(normed(x_BTD), None, layer)
    return self._sum('ffn_norm', x_BTD, fed), (found[0], None)

  def content(self, x_BTD: Array, context: Any) -> Array:
    """Returns the columns of x that are seen and remembered."""
    return x_BTD

  def entered(self, x_BTD: Array) -> Array:
    """Returns the input with what the layer adds to it first."""
    return x_BTD

  def relative(self, attention: Attention, context: Any, keys: int) -> Relative | None:
    """Returns the layer's terms by distance or segment."""
    if context.bias_NR is None:
      return None
    return Relative(bias_NR=context.bias_NR, far=keys - 1)

  def attend(
    self, attention: Attention, x_BTD: Array, seen_BSD: Array, context: Any, noise, layer: Array
  ) -> Array:
    """Returns the output of attention, before its dropout and the residual; seen_BSD is memory and
    input, normed where the norm stands before."""
    relative = self.relative(attention, context, seen_BSD.shape[1])
    normed_BTD = seen_BSD[:, -x_BTD.shape[1] :]
    return attention(normed_BTD, seen_BSD, context.mask, relative, context.rotary, noise, layer)

  def _attention(self, name: str, width: int) -> Attention:
    return Attention(
      self.heads, self.head_size or width // self.heads, width, self.initializer,
      self.attention_dropout, self.attention_bias, self.positions and name == 'attention',
      self.out_initializer, self.dtype, self.scale, name=name,
    )  # fmt: skip

  def _sum(self, name: str, x_BTD: Array, added, enters: bool = False) -> Array:
    """x and what is added to it, a function of x and the norm before; the norm in its place."""
    same: Any = lambda x: x
    norm = Norm(self.norm_eps, self.dtype, self.norm_std, self.norm, self.norm_bias, name=name)
    if enters:
      x_BTD, norm = norm(x_BTD), same
    if self.norm_place == 'before':
      return x_BTD + added(x_BTD, norm)
    return norm(x_BTD + added(x_BTD, same))

  def _feed_forward(self, x_BTD: Array, noise: Noise | None, layer: Array) -> Array:
    outer = self.dropout if self.ffn_dropout is None else self.ffn_dropout
    fields: dict[str, Any] = dict(
      ffn=self.ffn, activation=self.activation, gated=self.gated, bias=self.ffn_bias,
      dropouts=(self.inner_dropout, outer), initializer=self.initializer,
      out_initializer=self.out_initializer or self.initializer, dtype=self.dtype,
    )  # fmt: skip
    if self.nested:
      return FeedForward(fields, name='ffn')(x_BTD, noise, layer)
    return feed_forward(x_BTD, noise, layer, prefix='ffn_', **fields)


class FeedForward(nn.Module):
  """`feed_forward` in a module of its own; its options are the field."""

  fields: dict[str, Any]

  @nn.compact
  def __call__(self, x_BTD: Array, noise: Noise | None, layer: Array) -> Array:
    return feed_forward(x_BTD, noise, layer, prefix='', **self.fields)


def feed_forward(
  x_BTD: Array,
  noise: Noise | None,
  layer: Array,
  *,
  prefix: str,
  ffn: int,
  activation: str,
  gated: bool,
  bias: bool,
  dropouts: tuple[float, float],
  initializer: Init,
  out_initializer: Init,
  dtype: Any,
) -> Array:
  """Up, activation, dropout, down, dropout, as children of the module that calls it, whose names
  begin with `prefix`; the two dropouts are those behind the activation and at the end."""
  dense = lambda name, shape, axes, init: Dense(
    shape, axes, init, bias=bias, dtype=dtype, name=f'{prefix}{name}'
  )
  y_BTF = ACTIVATIONS[activation](dense('up', (ffn,), ('embed', 'ffn'), initializer)(x_BTD))
  if gated:
    y_BTF = y_BTF * dense('gate', (ffn,), ('embed', 'ffn'), initializer)(x_BTD)
  y_BTF = Dropout(dropouts[0], name=f'{prefix}inner_dropout')(y_BTF, noise, layer)
  y_BTD = dense('down', x_BTD.shape[-1:], ('ffn', 'embed'), out_initializer)(y_BTF)
  return Dropout(dropouts[1], name=f'{prefix}dropout')(y_BTD, noise, layer)


def no_shorter(other_BSD: Array, mask: Mask, queries: int) -> tuple[Array, Mask]:
  """Pads a text that is seen to the number of queries, which the operation asks for."""
  lacking = max(0, queries - other_BSD.shape[1])
  example_BS = jnp.pad(mask.example_k_BS, ((0, 0), (0, lacking)))
  padded_BSD = jnp.pad(other_BSD, ((0, 0), (0, lacking), (0, 0)))
  return padded_BSD, dataclasses.replace(mask, example_k_BS=example_BS)
