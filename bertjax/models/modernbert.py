"""ModernBERT, and encoders like it: norms before, gated feed-forward, no biases, rotary positions,
local attention between global layers.

Warner et al. 2024 (arXiv 2412.13663); AnswerDotAI/ModernBERT, whose `FlexBert` has the options;
transformers' `ModernBertForMaskedLM` is what the tests compare it with. Its fields also make others
of this kind: RMSNorm and SwiGLU with rotary positions in every layer are NeoBERT's (Le Breton et
al. 2025).
"""

from collections.abc import Mapping
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bertjax.errors import UserError
from bertjax.field_types import Count, Fraction, Natural, Positive
from bertjax.kernels.dropout import Noise
from bertjax.kernels.look_up import look_up
from bertjax.models.layers import flops as flops_lib
from bertjax.models.layers.attend import Attend, example_mask, named_tables
from bertjax.models.layers.attention import rotary
from bertjax.models.layers.basic import Init, Norm, NormKind, given_fields, options_of, word_table
from bertjax.models.layers.block import Context
from bertjax.models.layers.contracts import Sized, TargetModel
from bertjax.models.layers.encoder import Encoder, ended
from bertjax.models.layers.heads import (
  Head,
  Pooling,
  Transform,
  WordHead,
  declared,
  gather_positions,
  label_flops,
  label_heads,
  pool,
)
from bertjax.models.layers.positions import bias_table
from bertjax.types import Batch, Factory, Part

Distances = Literal['rotary', 'alibi', 'buckets']

# Base and large: paper, table 4. `test` and `tiny` are ours: four layers, so that a period of local
# and global ones stands behind the first.
SIZES: dict[str, dict[str, int]] = {
  'test': dict(layers=4, width=64, heads=8, ffn=96),
  'tiny': dict(layers=4, width=128, heads=2, ffn=192),
  'base': dict(layers=22, width=768, heads=12, ffn=1152),
  'large': dict(layers=28, width=1024, heads=16, ffn=2624),
}


class ModernBert(Sized, TargetModel, kw_only=True):
  """The model; fields are `config.model`.

  Attributes:
    positions: columns of the longest row; no parameter depends on it.
    activation, gated: of the feed-forward; gated, it is multiplied by a second projection: GEGLU
      with 'gelu_erf', SwiGLU with 'silu'.
    norm, norm_eps: of all norms, which stand before what they serve, and behind the embeddings and
      the last layer. The embeddings' is layer 0's: what it makes is also the residual stream there.
    biases: of norms, projections and the head's dense; the words always have one.
    distances: encoding of places. 'rotary' turns queries and keys; 'alibi' and
      'buckets' (T5's) add to the scores, the same in all layers.
    theta, local_theta: of 'rotary', in global and in local layers.
    window: keys that a token of a local layer sees on each side; 0: all layers are global.
    global_every: every n-th layer is global, from layer 0 on.
    attention_dropout, dropout, ffn_dropout: of the probabilities, of what attention adds, and
      within the feed-forward.
    init_std: of a normal distribution cut at 3 of it; what is added to the residual stream, and the
      head's dense, has init_std / sqrt(2 L).
    attend: see `bert.Base`.
    words: whether there is a head for the vocabulary; an encoder alone has none.
    labels, token_labels, head_dropout: see `bert.Base`; the head of the words without its table, a
      dense layer, activation and norm, is what these heads read.
    pooling: of which token, the first or the mean of all, labels of examples are.
  """

  positions: Count
  gated: bool = True
  norm: NormKind = 'layer_norm'
  biases: bool = False
  distances: Distances = 'rotary'
  theta: Positive = 10_000.0
  local_theta: Positive = 10_000.0
  window: Natural = 64
  global_every: Count = 3
  attention_dropout: Fraction = 0.0
  ffn_dropout: Fraction = 0.0
  init_std: Positive
  attend: Attend = 'example'
  words: bool = True
  labels: tuple[tuple[str, Natural], ...] = ()
  token_labels: tuple[tuple[str, Natural], ...] = ()
  head_dropout: Fraction = 0.0
  pooling: Pooling = 'first'

  has_segments = False

  @nn.compact
  def __call__(self, batch: Batch, noise: Noise | None = None, hidden: bool = False):
    """Runs the model, see `TargetModel`; token_label_BTC is as in `Bert`. Reads token, position and
    example; with words target_pos, with labels first."""
    dtype, init = jnp.dtype(self.dtype), normal(self.init_std)
    word_VE = word_table(self, 'word', self.vocab_size, self.width, init)
    embedded_BTD = look_up(word_VE, batch['token_BT']).astype(dtype)
    embedded_BTD = nn.with_logical_constraint(embedded_BTD, ('batch', 'length', 'embed_act'))
    encoder = Encoder(
      self.layers, self.remat, self._layer(), kinds=self.kinds, normed_stream=True,
      name='encoder',
    )  # fmt: skip
    x_BTD, hidden_LBTD = encoder(embedded_BTD, self._contexts(batch), noise, hidden=hidden)
    last = Norm(self.norm_eps, dtype, 0.0, self.norm, self.biases, name='final_norm')
    x_BTD = last(x_BTD)
    out: dict[str, Any] = dict(last_BTD=x_BTD)
    if self.words:
      head = WordHead(
        self.vocab_size, normal(self.out_std), dtype, True, 'gelu_erf', self.norm_eps, self.norm,
        self.biases, name='mlm',
      )  # fmt: skip
      out['word'] = head(gather_positions(x_BTD, batch['target_pos_BP']), word_VE)
    transform = Transform(
      'gelu_erf', self.norm_eps, normal(self.out_std), dtype, self.norm, self.biases, name='head'
    )
    out |= label_heads(
      self, normal(self.width**-0.5), noise,
      transform(pool(x_BTD, batch, self.pooling)) if self.labels else None,
      transform(x_BTD) if self.token_labels else None,
      ('label_BGC_dropout', 'token_label_BTC_dropout'),
    )  # fmt: skip
    if hidden_LBTD is not None:
      out |= dict(hidden_LBTD=ended(hidden_LBTD, x_BTD), embedded_BTD=embedded_BTD)
    return out

  @property
  def causal(self) -> bool:
    """True if a position sees what is before it alone."""
    return self.attend == 'causal'

  @property
  def tables(self) -> tuple[str, ...]:
    """The languages, where they decide who sees whom."""
    return named_tables((), self.attend)

  @property
  def output_heads(self) -> tuple[Head, ...]:
    """The heads that its fields ask for; those of labels read through `head`."""
    return declared(self, through='head')

  @property
  def out_std(self) -> float:
    """The standard deviation of what is added to the residual stream (Megatron's)."""
    return self.init_std / (2 * self.layers) ** 0.5

  @property
  def kinds(self) -> tuple[int, ...]:
    """0 of each global layer, 1 of each local one."""
    return tuple(int(bool(self.window and i % self.global_every)) for i in range(self.layers))

  @nn.nowrap
  def _layer(self) -> dict[str, Any]:
    """Returns the fields of `Block`."""
    return dict(
      heads=self.heads, ffn=self.ffn, activation=self.activation, gated=self.gated,
      norm=self.norm, norm_eps=self.norm_eps, norm_place='before',
      norm_bias=self.biases, attention_bias=self.biases, ffn_bias=self.biases,
      dropout=self.dropout, attention_dropout=self.attention_dropout,
      inner_dropout=self.ffn_dropout, ffn_dropout=0.0, initializer=normal(self.init_std),
      out_initializer=normal(self.out_std), dtype=jnp.dtype(self.dtype),
    )  # fmt: skip

  def _contexts(self, batch: Batch) -> list[Context]:
    """Returns the contexts of global and of local layers, in this order."""
    mask, found = example_mask(batch, self.attend), []
    bias_NR = None
    if self.distances != 'rotary':
      length, init = batch['token_BT'].shape[1], normal(self.init_std)
      bias_NR = bias_table(self, self.distances, self.heads, length, init)
    for theta, window in ((self.theta, None), (self.local_theta, self.window + 1)):
      turns = None
      if self.distances == 'rotary':
        turns = rotary(batch['position_BT'], self.width // self.heads, theta)
      found.append(Context(mask.within(window), rotary=turns, bias_NR=bias_NR))
    return found

  @nn.nowrap
  def flops(self, batch: Batch) -> float:
    """Counts model FLOPs, see `Model.flops`: layers with their windows, and the heads."""
    example_BT = np.asarray(batch['example_BT'])
    each = lambda window: flops_lib.block_flops(
      example_BT, self.width, self.ffn, gated=self.gated, window=window
    )
    local = sum(self.kinds)
    count = (self.layers - local) * each(None) + local * each(self.window + 1)
    if self.words:
      predicted = flops_lib.targets(batch)
      count += flops_lib.head_flops(predicted, self.width**2, self.width * self.vocab_size)
    return count + label_flops(self, batch, self.width**2, self.width**2)


def normal(std: float) -> Init:
  """Normal draws cut at 3 standard deviations and not compensated (initializer_cutoff_factor)."""
  return jax.nn.initializers.truncated_normal(std, lower=-3.0, upper=3.0)


def make(config) -> ModernBert:
  """Builds the model from `config.model`. Raises UserError: as `given_fields`; heads of an odd size
  where pairs turn."""
  fields = given_fields(ModernBert, config)
  width, heads = fields['width'], fields['heads']
  if fields['distances'] == 'rotary' and width // heads % 2:
    raise UserError(
      'model.width must be a multiple of model.heads, with an even quotient for rotary distances, '
      f'got {width} and {heads}'
    )
  return ModernBert(**fields)


def _with_head(params: Mapping[str, Any]) -> Mapping[str, Any]:
  """Returns the parameters where heads of labels get the layers before the word table."""
  head = {key: params['mlm'][key] for key in ('dense', 'norm')} if 'mlm' in params else {}
  return {**params, 'head': head} if head else params


MODEL = Factory(options_of(ModernBert), make, tuned=Part(select=_with_head))
