"""ELECTRA's two nets over one embedding: a generator of replacements and a discriminator.

Clark et al. 2020, google-research/electra, run_pretraining.py and modeling.py. Word, position and
type tables of width E and their norm are shared. Each net has its own dropout behind them, its own
projection to its width where that is not E, and its own layers. The generator ends in BERT's
masked-LM head, of width E and tied to the word table; the discriminator in dense, activation and a
logit per token. The projections and that last dense keep the framework's default initializer
(Glorot uniform), the rest is the config's.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertjax.errors import UserError, choose
from bertjax.field_types import Count, Positive
from bertjax.kernels.cross_entropy import Scores
from bertjax.kernels.dropout import Noise, fork
from bertjax.kernels.relative_attention import Mask
from bertjax.models import bert
from bertjax.models.layers import flops as flops_lib
from bertjax.models.layers.attend import example_mask
from bertjax.models.layers.basic import (
  ACTIVATIONS,
  INITS,
  METADATA,
  Dense,
  Dropout,
  Init,
  options_of,
)
from bertjax.models.layers.block import Context
from bertjax.models.layers.embeddings import Embeddings
from bertjax.models.layers.encoder import Encoder
from bertjax.models.layers.heads import Head, WordHead, at_targets, gather_positions
from bertjax.types import Array, Batch, Factory, Part

SINGLE = dict(name='bert', family='electra_net')  # one of the nets, as a BERT
Generator = Literal['own', 'shared', 'uniform', 'two_tower']


class Net(nn.Module):
  """dropout -> projection where widths differ -> layers."""

  width: int  # of the layers
  dropout: float  # of what enters
  encoder: dict[str, Any]  # the fields of `Encoder`

  @nn.compact
  def __call__(
    self, x_BTE: Array, mask: Mask, noise: Noise | None, hidden: bool = False
  ) -> tuple[Array, Array | None, Array]:
    """Returns the last layer's output, every layer's or None, and what enters the first."""
    x_BTD = Dropout(self.dropout, name='dropout')(x_BTE, noise)
    if x_BTD.shape[-1] != self.width:
      dense = Dense(
        (self.width,), ('embed_out', 'embed'), jax.nn.initializers.glorot_uniform(),
        dtype=x_BTD.dtype, name='projection',
      )  # fmt: skip
      x_BTD = dense(x_BTD)
    encoder = Encoder(**self.encoder, name='encoder')
    last_BTD, hidden_LBTD = encoder(x_BTD, Context(mask), noise, hidden=hidden)
    return last_BTD, hidden_LBTD, x_BTD


class TokenHead(nn.Module):
  """dense -> activation -> one logit per token."""

  activation: str
  initializer: Init
  dtype: Any

  @nn.compact
  def __call__(self, x_BTD: Array) -> Array:
    """Returns float32 [B, T]."""
    glorot = jax.nn.initializers.glorot_uniform()
    return token_logits(x_BTD, self.activation, self.initializer, glorot, self.dtype)


def token_logits(
  x_BTD: Array, activation: str, initializer: Init, out_initializer: Init, dtype: Any
) -> Array:
  """Returns a float32 logit of each token; its layers are children of the module that calls it."""
  shape, axes = x_BTD.shape[-1:], ('embed', 'embed_out')
  dense = Dense(shape, axes, initializer, dtype=dtype, name='dense')
  out = Dense((1,), ('embed', 'label'), out_initializer, name='out')
  return out(ACTIVATIONS[activation](dense(x_BTD)))[..., 0]


class Electra(bert.Base, kw_only=True):
  """The model of `objectives/rtd.py`; the fields of `bert.Base` are the discriminator's.

  Attributes:
    generator: 'own': a net of its own. 'shared': the discriminator itself (untied_generator off in
      the original). 'uniform': none, replacements are uniform over the vocabulary. 'two_tower': a
      causal and an anticausal net, which see all tokens but the predicted one (Electric).
    generator_width: of the generator's layers, as a share of the discriminator's.
    generator_layers: their number, likewise.
    generator_head: width of a head of the generator; its feed-forward part is 4 times its width.
    tied_embeddings: off, the generator has embeddings of its own, as wide as the discriminator's
      or as its layers, whichever is less (the original's have the width of its layers).
  """

  generator: Generator = 'own'
  generator_width: Positive
  generator_layers: Positive
  generator_head: Count
  tied_embeddings: bool = True

  def setup(self):
    dtype, init = jnp.dtype(self.dtype), INITS[self.initializer](self.init_std)
    tables: dict[str, Any] = dict(self.embeddings_fields(), dropout=0.0, out_width=self.table_width)
    self.embeddings = Embeddings(**tables)
    self.discriminator = Net(self.width, self.dropout, self.encoder_fields())
    self.rtd = TokenHead(self.activation, init, dtype)
    if self.generator != 'uniform':
      self.mlm = WordHead(
        self.vocab_size, init, dtype, self.transform, self.activation, self.norm_eps
      )
    if self.generator in ('own', 'two_tower'):
      size = generator_size(self)
      encoder = self.encoder_fields()
      layer = dict(encoder['layer'], heads=size['heads'], ffn=size['ffn'])
      encoder |= dict(layers=size['layers'], layer=layer)
      net = lambda: Net(size['width'], self.dropout, encoder)
      if not self.tied_embeddings:
        width = generator_table_width(self)
        own: dict[str, Any] = dict(tables, width=width, out_width=width)
        self.generator_embeddings = Embeddings(**own)
      if self.generator == 'own':
        self.generator_net = net()
      else:
        self.generator_forward, self.generator_backward = net(), net()

  def __call__(self, batch: Batch) -> dict[str, Any]:
    """Runs every part once, so that all parameters are made."""
    scores = self.generate(batch, None) if self.generator != 'uniform' else None
    return dict(word=scores, **self.discriminate(batch, None))

  def generate(self, batch: Batch, noise: Noise | None) -> Scores:
    """Returns the scores of the words at the targets of the batch; two towers: at every token of
    it."""
    embeddings = self.embeddings
    if self.generator in ('own', 'two_tower') and not self.tied_embeddings:
      embeddings = self.generator_embeddings
    x_BTE, table_VE = embeddings(batch, None)
    if self.generator == 'two_tower':
      masks = [example_mask(batch, attend) for attend in ('causal', 'anticausal')]
      left_BTD, *_ = self.generator_forward(x_BTE, masks[0], noise)
      right_BTD, *_ = self.generator_backward(x_BTE, masks[1], fork(noise, 'backward'))
      # The states before and after a token, at the token's place.
      around_BTD = jnp.concatenate([jnp.roll(left_BTD, 1, 1), jnp.roll(right_BTD, -1, 1)], -1)
      return self.mlm(around_BTD, table_VE)
    net = self.generator_net if self.generator == 'own' else self.discriminator
    h_BTD, *_ = net(x_BTE, example_mask(batch, self.attend), noise)
    return self.mlm(gather_positions(h_BTD, batch['target_pos_BP']), table_VE)

  def discriminate(self, batch: Batch, noise: Noise | None, hidden: bool = False) -> dict[str, Any]:
    """Judges the tokens of the batch. Returns rtd_BT, float32 logits of "replaced"; last_BTD;
    hidden_LBTD and embedded_BTD if asked."""
    x_BTE, _ = self.embeddings(batch, None)
    mask = example_mask(batch, self.attend)
    last_BTD, *layers = self.discriminator(x_BTE, mask, noise, hidden)
    out = dict(rtd_BT=self.rtd(last_BTD), last_BTD=last_BTD)
    return dict(out, hidden_LBTD=layers[0], embedded_BTD=layers[1]) if hidden else out

  @property
  def output_heads(self) -> tuple[Head, ...]:
    """The generator's head for words, where there is one, and the discriminator's."""
    words = (Head('word', 'word', self.vocab_size, 'mlm'),)
    return (*(words if self.generator != 'uniform' else ()), Head('replaced', 'replaced', 1, 'rtd'))

  def read(self, batch: Batch, hidden: bool = True) -> dict[str, Any]:
    """Runs the discriminator on a batch without dropout: for export and use."""
    return self.discriminate(batch, None, hidden)

  def word_scores(self, batch: Batch) -> Scores:
    """Returns the generator's scores at the targets of a batch."""
    scores = self.generate(batch, None)
    return at_targets(scores, batch) if self.generator == 'two_tower' else scores

  @nn.nowrap
  def flops(self, batch: Batch) -> float:
    """Counts model FLOPs of generator and discriminator, see `Model.flops`."""
    return self.discriminator_flops(batch) + self.generator_flops(batch)

  @nn.nowrap
  def discriminator_flops(self, batch: Batch) -> float:
    """FLOPs of forward and backward through the discriminator and its head."""
    size = dict(layers=self.layers, width=self.width, ffn=self.ffn)
    net = self.net_flops(batch, self.table_width, **size)
    return net + flops_lib.head_flops(flops_lib.real(batch), self.width**2 + self.width)

  @nn.nowrap
  def generator_flops(self, batch: Batch) -> float:
    """FLOPs of forward and backward through the generator. Its head runs at the targets; that of
    two towers at every token."""
    if self.generator == 'uniform':
      return 0.0
    size = generator_size(self)
    if self.generator == 'shared':
      size = dict(layers=self.layers, width=self.width, ffn=self.ffn)
    size.pop('heads', None)
    towers = 2 if self.generator == 'two_tower' else 1
    scored = flops_lib.real(batch) if towers == 2 else flops_lib.targets(batch)
    width = generator_table_width(self)
    transform = towers * size['width'] * width if self.transform else 0
    head = flops_lib.head_flops(scored, transform, width * self.vocab_size)
    return towers * self.net_flops(batch, width, **size) + head


def generator_size(model: Any) -> dict[str, int]:
  """Returns width, layers, heads and ffn of the generator of an `Electra` or its `config.model`
  (util/training_utils.py, get_generator_config)."""
  width = round(model.width * model.generator_width)
  layers = round(model.layers * model.generator_layers)
  heads = max(1, width // model.generator_head)
  return dict(width=width, layers=layers, heads=heads, ffn=4 * width)


def generator_table_width(model: Any) -> int:
  """Returns the width of the tables that the generator reads, of an `Electra` or its
  `config.model`."""
  width = model.embedding_width or model.width
  if model.tied_embeddings or model.generator == 'shared':
    return width
  return min(width, generator_size(model)['width'])


def make(config, kind: type[Electra] = Electra) -> Any:
  """Builds a pair of nets from `config.model`. Raises UserError: an unknown generator, one without
  layers, heads that do not divide its width, labels of examples, which have no head here; or as
  `bert.fields`."""
  fields = bert.fields(kind, config)
  choose(fields['generator'], get_args(Generator), 'config.model.generator')
  wanted = dict(words=True, pooler=False, labels=(), token_labels=(), answers='none')
  other = {key: fields[key] for key, value in wanted.items() if fields[key] != value}
  if other:
    raise UserError(f'the heads of ELECTRA are {wanted}: got config.model with {other}')
  size = generator_size(config)
  if size['layers'] < 1 or size['width'] < 1 or size['width'] % size['heads']:
    raise UserError(
      'expected a generator of at least one layer whose heads divide its width, got '
      f'{size["layers"]} layers and {size["heads"]} heads of width {size["width"]}: change '
      'config.model.generator_layers, generator_width or generator_head'
    )
  return kind(**fields)


def net_of(model: Mapping[str, Any], kind: type[bert.Bert], **more: Any) -> dict[str, Any]:
  """Returns the `config.model` of one net as a model of this kind, with more fields."""
  own = {*METADATA, *(field.name for field in dataclasses.fields(kind))}
  return {key: value for key, value in dict(model).items() if key in own} | more


def encoder_of(tables: Mapping[str, Any], net: Mapping[str, Any]) -> dict[str, Any]:
  """Returns one of the two nets as the encoder of a BERT, whose embeddings hold the projection."""
  projection = dict(projection=net['projection']) if 'projection' in net else {}
  return dict(embeddings=dict(tables, **projection), encoder=net['encoder'])


def beside(model: Any) -> dict[str, Part]:
  """Returns the generator of an ELECTRA model as a BERT with words; {} if it is no single net."""
  if model.generator not in ('own', 'shared'):
    return {}
  own, size = model.generator == 'own', {}
  if own:
    size = dict(generator_size(model), embedding_width=generator_table_width(model))

  def select(params: Mapping[str, Any]) -> Mapping[str, Any]:
    tables = params.get('generator_embeddings', params['embeddings'])
    net = params['generator_net' if own else 'discriminator']
    return dict(encoder_of(tables, net), mlm=params['mlm'])

  return dict(generator=Part(lambda whole: net_of(whole, bert.Bert, **SINGLE, **size), select))


def _discriminator(params: Mapping[str, Any]) -> Mapping[str, Any]:
  others = {key: tree for key, tree in params.items() if key != 'discriminator'}
  return others | encoder_of(params['embeddings'], params['discriminator'])


MODEL = Factory(
  options_of(Electra),
  make,
  Part(lambda model: net_of(model, bert.Bert, **SINGLE, words=False), _discriminator),
  beside=beside,
)
