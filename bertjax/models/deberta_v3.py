"""DeBERTa-v3's two nets: a generator with a decoder of masked words, and a discriminator.

He et al. 2021 (DeBERTaV3, arXiv 2111.09543); microsoft/DeBERTa, DeBERTa/apps. Both have the same
width and each its own layers and table of distances (`deberta.Net`); the generator ends in the
enhanced mask decoder. The discriminator's word table is the generator's plus a difference of its
own, so that its gradient does not reach the generator. A run may begin with a discriminator of
transformers, and with the generator beside it.
"""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertjax.errors import UserError
from bertjax.kernels.cross_entropy import Scores
from bertjax.kernels.dropout import Noise
from bertjax.models import electra
from bertjax.models.deberta import PASSES, Base, Deberta, Net
from bertjax.models.layers.attend import example_mask
from bertjax.models.layers.basic import INITS, Init, Norm, options_of, word_table
from bertjax.models.layers.embeddings import Embeddings
from bertjax.models.layers.heads import WordHead, gather_positions
from bertjax.types import Array, Batch, Factory, Part

SINGLE = dict(name='deberta', family='deberta_v2')  # one of the nets, as a DeBERTa


class DebertaV3(Base, electra.Electra, kw_only=True):
  """The generator and the discriminator of DeBERTa-v3: the model of `objectives/rtd.py`.

  The generator has the discriminator's width. Of ELECTRA's fields `generator` is 'own'.

  Attributes:
    positions: as in `deberta.Base`; the decoder has as many absolute positions.
    tied_embeddings: off, each net has a word table of its own (NES in the paper).
    disentangled: of a tied table; the discriminator's is the generator's, which gets no gradient
      from it, plus a difference of its own that starts at zero (GDES); off: the same table (ES).
    decoder: the generator ends in the enhanced mask decoder; off: in its last layer.
  """

  disentangled: bool = True
  decoder: bool = True

  def setup(self):
    dtype, init = jnp.dtype(self.dtype), INITS[self.initializer](self.init_std)
    tables = self.embeddings_fields()
    table = lambda name, init: word_table(self, name, self.vocab_size, self.width, init)
    self.word = table('word', init)
    if not self.tied_embeddings:
      self.own_word = table('own_word', init)
    elif self.disentangled:
      self.difference = table('difference', jax.nn.initializers.zeros)
    self.embeddings, self.generator_embeddings = Embeddings(**tables), Embeddings(**tables)
    net = self.net_fields()
    self.discriminator = Net(**net)
    net |= dict(layers=electra.generator_size(self)['layers'])
    self.generator_net = Net(**net, positions=self.positions if self.decoder else 0)
    self.mlm = WordHead(self.vocab_size, init, dtype, True, self.activation, self.norm_eps)
    self.rtd = Judge(self.activation, self.norm_eps, init, dtype)

  def generate(self, batch: Batch, noise: Noise | None) -> Scores:
    """Returns the scores of the words at the targets of the batch."""
    x_BTD, _ = self.generator_embeddings(batch, noise, self.word)
    mask = example_mask(batch, self.attend)
    h_BTD, _ = self.generator_net(x_BTD, mask, noise, position_BT=batch['position_BT'])
    return self.mlm(gather_positions(h_BTD, batch['target_pos_BP']), self.word)

  def discriminate(self, batch: Batch, noise: Noise | None, hidden: bool = False) -> dict[str, Any]:
    """Judges the tokens of the batch; returns what `Electra.discriminate` does."""
    if not self.tied_embeddings:
      word_VE = self.own_word
    elif self.disentangled:
      word_VE = jax.lax.stop_gradient(self.word) + self.difference
    else:
      word_VE = self.word
    x_BTD, _ = self.embeddings(batch, noise, word_VE)
    mask = example_mask(batch, self.attend)
    last_BTD, hidden_LBTD = self.discriminator(x_BTD, mask, noise, hidden)
    out = dict(rtd_BT=self.rtd(last_BTD, batch), last_BTD=last_BTD)
    return dict(out, hidden_LBTD=hidden_LBTD, embedded_BTD=x_BTD) if hidden else out

  @nn.nowrap
  def generator_flops(self, batch: Batch) -> float:
    """FLOPs of forward and backward through the generator, its decoder and its head."""
    size = dict(layers=(PASSES - 1) * self.decoder, width=self.width, ffn=self.ffn)
    return super().generator_flops(batch) + self.net_flops(batch, self.width, **size)


class Judge(nn.Module):
  """A token's state and that of its example's first token, added up -> norm -> dense -> activation
  -> one logit (replaced_token_detection_model.py:44)."""

  activation: str
  norm_eps: float
  initializer: Init
  dtype: Any

  @nn.compact
  def __call__(self, x_BTD: Array, batch: Batch) -> Array:
    """Returns float32 [B, T]."""
    length = x_BTD.shape[1]
    first_BT = jnp.maximum(jnp.arange(length)[None] - batch['position_BT'], 0)
    x_BTD = x_BTD + gather_positions(x_BTD, first_BT)
    x_BTD = Norm(self.norm_eps, self.dtype, name='norm')(x_BTD)
    init = self.initializer
    return electra.token_logits(x_BTD, self.activation, init, init, self.dtype)


def make(config) -> DebertaV3:
  """Builds the model from `config.model`. Raises UserError: as `electra.make`; a generator that is
  no net of its own, or of another width, whose word table the discriminator could not have."""
  made = electra.make(config, DebertaV3)
  size = electra.generator_size(config)
  if made.generator != 'own' or (size['width'], size['heads']) != (made.width, made.heads):
    raise UserError(
      "the generator is a net of its own with the discriminator's width and heads: expected "
      "config.model.generator='own', generator_width=1.0 and generator_head="
      f'{made.width // made.heads}, got {made.generator!r} with {size["heads"]} heads of width '
      f'{size["width"]}'
    )
  if made.sharing != 'none' or made.embedding_width not in (0, made.width):
    raise UserError(
      "config.model: DeBERTa has sharing='none' and tables as wide as its layers, got sharing="
      f'{made.sharing!r} and embedding_width={made.embedding_width} of width={made.width}'
    )
  return made


def _beside(model: Any) -> dict[str, Part]:
  """Returns the generator; {} where it ends in the decoder, which is of no class."""
  if model.decoder:
    return {}
  layers = electra.generator_size(model)['layers']
  net = lambda whole: electra.net_of(whole, Deberta, **SINGLE, layers=layers, words=True)

  def select(params: Mapping[str, Any]) -> Mapping[str, Any]:
    tables = dict(params['generator_embeddings'], word=params['word'])
    return dict(embeddings=tables, encoder=params['generator_net'], mlm=params['mlm'])

  return dict(generator=Part(net, select))


def _discriminator(params: Mapping[str, Any]) -> Mapping[str, Any]:
  word_VE = params.get('own_word', params['word'])
  if 'difference' in params:
    word_VE = word_VE + params['difference']
  embeddings = dict(params['embeddings'], word=word_VE)
  return dict(embeddings=embeddings, encoder=params['discriminator'])


def _begun(model: Any, other: Mapping[str, Any]) -> Part:
  """Returns the way from a single net, the discriminator, to a run's pair. Where 'generator' is not
  among its parameters, the generator is made anew, with the word table of the discriminator."""

  def select(params: Mapping[str, Any]) -> Mapping[str, Any]:
    own_VE, norm = params['embeddings']['word'], params['embeddings']['norm']
    found = dict(word=own_VE, embeddings=dict(norm=norm), discriminator=params['encoder'])
    if made := params.get('generator'):
      if ('absolute' in made['encoder']) != model.decoder:
        raise UserError(
          'config.init_from: its generator ends in '
          + ('its last layer' if model.decoder else 'the enhanced mask decoder')
          + f': expected config.model.decoder={not model.decoder}'
        )
      found |= dict(word=made['embeddings']['word'], generator_net=made['encoder'], mlm=made['mlm'])
      found['generator_embeddings'] = dict(norm=made['embeddings']['norm'])
    if not model.tied_embeddings:
      return dict(found, own_word=own_VE)
    if model.disentangled:
      return dict(found, difference=own_VE - found['word'])
    return dict(found, word=own_VE)

  return Part(lambda given: {**given, 'name': 'deberta_v3'}, select)


MODEL = Factory(
  options_of(DebertaV3),
  make,
  Part(lambda model: electra.net_of(model, Deberta, **SINGLE, words=False), _discriminator),
  begins=dict(deberta=_begun),
  beside=_beside,
)
