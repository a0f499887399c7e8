"""The encoder of the BERT family and its heads.

BERT (Devlin et al. 2019, google-research/bert), RoBERTa (Liu et al. 2019, fairseq) and the systems
that differ from them by fields of `Base`. The tests assert the parameter counts that transformers
reports.
"""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bertjax.errors import UserError, choose
from bertjax.field_types import Count, Fraction, IdOfPad, Natural, Positive
from bertjax.kernels.cross_entropy import Scores, logits
from bertjax.kernels.dropout import Noise
from bertjax.kernels.relative_attention import Mask, Relative, weights
from bertjax.models.layers import answers as answers_lib
from bertjax.models.layers import flops as flops_lib
from bertjax.models.layers import heads as heads_lib
from bertjax.models.layers import pad_id
from bertjax.models.layers.attend import Attend, example_mask, named_tables
from bertjax.models.layers.attention import projections
from bertjax.models.layers.basic import INITS, Dropout, Initializer, given_fields, options_of
from bertjax.models.layers.block import Context
from bertjax.models.layers.cache import Caches, Reading
from bertjax.models.layers.contracts import AttendingModel, Sized
from bertjax.models.layers.embeddings import Embeddings
from bertjax.models.layers.encoder import Encoder, Sharing, check_sharing
from bertjax.models.layers.writing import OneText
from bertjax.types import Array, Batch, Factory

# tiny..medium: Turc et al. 2019 (arXiv 1908.08962); base, large: Devlin et al. 2019. `test` is
# ours: two layers of 8 heads, so that every test mesh divides it.
SIZES: dict[str, dict[str, int]] = {
  'test': dict(layers=2, width=64, heads=8, ffn=256),
  'tiny': dict(layers=2, width=128, heads=2, ffn=512),
  'mini': dict(layers=4, width=256, heads=4, ffn=1024),
  'small': dict(layers=4, width=512, heads=8, ffn=2048),
  'medium': dict(layers=8, width=512, heads=8, ffn=2048),
  'base': dict(layers=12, width=768, heads=12, ffn=3072),
  'large': dict(layers=24, width=1024, heads=16, ffn=4096),
}


class Base(Sized, kw_only=True):
  """The fields of BERT and of the models made of the same parts: `config.model`.

  Attributes:
    embedding_width: E of the tables (ALBERT, ELECTRA); 0: D.
    positions: rows of the position table; RoBERTa has 514 for 512 positions.
    sinusoid: positions are sinusoids (Vaswani et al. 2017), not a learned table.
    types: rows of the segment table; 0: none. RoBERTa uses 1 (a constant row, as transformers
      keeps one).
    extra: (name, rows) of further embedding tables: XLM's languages, ERNIE's dialogue roles.
    position_offset: row of the first position; -1: behind the vocabulary's id of [PAD] (fairseq).
    zero_row: id whose word vector starts at zero, or None; -1: that of [PAD] (fairseq, XLM).
    attend: 'example'; 'causal': nothing later than itself; 'self': each token sees itself only,
      the ablation without attention; 'language': those of its own language only, the ablation of
      translation language modelling without the translation.
    transform: dense, activation and norm before the output layer (all but XLM).
    sharing, groups, inner_groups: parameters that layers hold in common; see `Encoder`.
    words: whether there is a head for the vocabulary; an encoder alone has none.
    pooler: dense + tanh of the first token of each packed example even where no label reads it, as
      encoders of transformers have it.
    pooler_activation: in place of that tanh (ELECTRA, DistilBERT); 'none': heads of labels read the
      token as it is, without a dense layer (XLM).
    pooling: input of the pooler, the first token or the mean of all.
    labels: (name, classes) of the heads on it; 0 classes: as many as labelled examples have.
    head_dropout: rate of the dropout on what heads of labels read.
    pooler_dropout: whether that dropout is also on what the pooler reads (RoBERTa, ELECTRA).
    token_labels: (name, classes) of the heads on every token: tags, or the ends of a span.
    answers: the head of questions whose ends are asked for behind a start, 'none' or a form of
      `answers.FORMS`; it stands alone.
  """

  embedding_width: Natural = 0
  positions: Count
  sinusoid: bool = False
  types: Natural
  extra: tuple[tuple[str, Natural], ...] = ()
  position_offset: IdOfPad = 0
  zero_row: IdOfPad | None = None
  attention_dropout: Fraction
  initializer: Initializer
  init_std: Positive
  attend: Attend = 'example'
  transform: bool = True
  sharing: Sharing = 'none'
  groups: Count = 1
  inner_groups: Count = 1
  words: bool = True
  pooler: bool = False
  pooler_activation: heads_lib.PoolerActivation = 'tanh'
  pooling: heads_lib.Pooling = 'first'
  labels: tuple[tuple[str, Natural], ...] = ()
  head_dropout: Fraction = 0.0
  pooler_dropout: bool = False
  token_labels: tuple[tuple[str, Natural], ...] = ()
  answers: answers_lib.Answers = 'none'

  @nn.nowrap
  def embeddings_fields(self) -> dict[str, Any]:
    """Returns the fields of the model's Embeddings."""
    return dict(
      vocab_size=self.vocab_size, positions=self.positions, sinusoid=self.sinusoid,
      types=self.types, width=self.table_width, out_width=self.width,
      extra=self.extra, position_offset=self.position_offset, zero_row=self.zero_row,
      norm_eps=self.norm_eps, dropout=self.dropout,
      initializer=INITS[self.initializer](self.init_std), dtype=jnp.dtype(self.dtype),
    )  # fmt: skip

  @nn.nowrap
  def encoder_fields(self) -> dict[str, Any]:
    """Returns the fields of the model's Encoder."""
    layer = dict(
      heads=self.heads, ffn=self.ffn, activation=self.activation, norm_eps=self.norm_eps,
      dropout=self.dropout, attention_dropout=self.attention_dropout,
      initializer=INITS[self.initializer](self.init_std), dtype=jnp.dtype(self.dtype),
    )  # fmt: skip
    return dict(
      layers=self.layers, remat=self.remat, layer=layer, sharing=self.sharing, groups=self.groups,
      inner_groups=self.inner_groups,
    )  # fmt: skip

  @property
  def room(self) -> int:
    """Columns of the longest row: rows of the position table from `position_offset` on."""
    return self.positions - self.position_offset

  @property
  def has_segments(self) -> bool:
    """True if the model tells the segments of a row apart: it has two types or more."""
    return self.types > 1

  @property
  def causal(self) -> bool:
    """True if a position sees what is before it alone."""
    return self.attend == 'causal'

  @property
  def reach(self) -> int | None:
    """The distance from which on a token sees no other; None: it sees all of its example."""
    return None

  @property
  def tables(self) -> tuple[str, ...]:
    """Names of the further tables, and of the languages where they decide who sees whom."""
    return named_tables(self.extra, self.attend)

  @property
  def table_width(self) -> int:
    """E, the width of the embedding tables."""
    return self.embedding_width or self.width

  @nn.nowrap
  def net_flops(
    self, batch: Batch, table_width: int, *, layers: int, width: int, ffn: int
  ) -> float:
    """FLOPs of layers, and of what projects the tables to their width."""
    visits = layers * self.inner_groups  # what is shared is computed every time
    count = visits * flops_lib.block_flops(batch['example_BT'], width, ffn, window=self.reach)
    if table_width != width:
      count += flops_lib.head_flops(flops_lib.real(batch), table_width * width)
    return count


class Bert(Base, AttendingModel):
  """BERT, and the model of every system that differs from it by fields of `Base`."""

  @nn.compact
  def __call__(self, batch: Batch, noise: Noise | None = None, hidden: bool = False):
    """Runs the encoder and the heads, see `TargetModel`; pooled_BGD where there is a pooler. Reads
    token, position, type, example, the extra tables' ids, with words target_pos and, with labels or
    a pooler, first."""
    init = INITS[self.initializer](self.init_std)
    embedded_BTD, word_VE = Embeddings(**self.embeddings_fields(), name='embeddings')(batch, noise)
    net, seen = self.net(batch)
    x_BTD, hidden_LBTD = net(embedded_BTD, seen, noise, hidden=hidden)
    out: dict[str, Any] = dict(last_BTD=x_BTD)
    if self.words:
      out['word'] = self._scores(heads_lib.gather_positions(x_BTD, batch['target_pos_BP']), word_VE)
    if hidden:
      out |= dict(hidden_LBTD=hidden_LBTD, embedded_BTD=embedded_BTD)
    read_BGD = None
    if self.labels or self.pooler:
      read_BGD = heads_lib.pool(x_BTD, batch, self.pooling)
      if self.pooler_dropout:
        read_BGD = Dropout(self.head_dropout, name='pooler_dropout')(read_BGD, noise)
      if self.pooler_activation != 'none':
        read_BGD = heads_lib.pooler(self, read_BGD, init, self.pooler_activation)
        out['pooled_BGD'] = read_BGD
    out |= heads_lib.label_heads(self, init, noise, read_BGD, x_BTD if self.token_labels else None)
    if self.answers != 'none':
      own = self.answers, 1, self.norm_eps, init, self.head_dropout, jnp.dtype(self.dtype)
      out['answers'] = answers_lib.AnswerHead(*own, name='answers')(x_BTD, batch, noise)
    return out

  def net(self, batch: Batch) -> tuple[Encoder, Any]:
    """Returns the layers, and what they are told of the batch besides the hidden states."""
    return Encoder(**self.encoder_fields(), name='encoder'), Context(self.mask(batch))

  def mask(self, batch: Batch) -> Mask:
    """Returns the keys that each token sees."""
    return example_mask(batch, self.attend).within(self.reach)

  def _scores(self, x_BPD: Array, word_VE: Array) -> Scores:
    """Returns the scores of the words at these places."""
    head = heads_lib.WordHead(
      self.vocab_size, INITS[self.initializer](self.init_std), jnp.dtype(self.dtype),
      self.transform, self.activation, self.norm_eps, name='mlm',
    )  # fmt: skip
    return head(x_BPD, word_VE)

  def projections(self, out: Mapping[str, Any], layers: Sequence[int]) -> dict[str, Array]:
    """Computes queries, keys and values, where every layer has attention of its own."""
    stack = self.variables['params']['encoder']['layers']['attention']
    params = jax.tree.map(lambda leaf: leaf[np.array(layers)], stack)
    read = lambda layer: out['hidden_LBTD'][layer - 1] if layer else out['embedded_BTD']
    x_LBTD = jnp.stack([read(layer) for layer in layers])
    return projections(params, x_LBTD, jnp.dtype(self.dtype))

  def attends(self, out: Mapping[str, Any], batch: Batch, layer: int) -> Array:
    """Computes the weights of a layer, see `AttendingModel`."""
    found = self.projections(out, (layer,))
    relative = self.relative(layer, len(out['last_BTD'][0]))
    return weights(found['query'][0], found['key'][0], self.mask(batch), relative)

  def relative(self, layer: int, length: int) -> Relative | None:
    """Returns the terms by distance of a layer in rows of a length, of made parameters."""
    return None

  @nn.nowrap
  def flops(self, batch: Batch) -> float:
    """Counts model FLOPs, see `Model.flops`: layers, the tables' projection, heads in use."""
    size = dict(layers=self.layers, width=self.width, ffn=self.ffn)
    count = self.net_flops(batch, self.table_width, **size)
    if self.words:
      predicted = flops_lib.targets(batch)
      transform = self.width * self.table_width if self.transform else 0
      count += flops_lib.head_flops(predicted, transform, self.table_width * self.vocab_size)
    between = 0 if self.pooler_activation == 'none' else self.width * self.width
    count += heads_lib.label_flops(self, batch, between, pooled=self.pooler)
    return count + answers_lib.flops(self.answers, self.width, batch)


class Causal(Bert, OneText):
  """A BERT that sees what is before a token alone, and so writes (XLM's CLM)."""

  def continued(self, batch: Batch, reading: Reading, caches: Caches) -> tuple[Array, Caches]:
    """Reads new columns of a text; see `OneText`."""
    batch = dict(batch, type_BT=jnp.zeros_like(batch['token_BT']))
    x_BTD, word_VE = Embeddings(**self.embeddings_fields(), name='embeddings')(batch, None)
    encoder = Encoder(**self.encoder_fields(), name='encoder')
    x_BTD, caches = encoder(x_BTD, reading, None, caches)
    return logits(self._scores(x_BTD[:, -1:], word_VE))[:, 0], caches


def make(config) -> Bert:
  """Builds the model from `config.model`; errors as `fields`."""
  found = fields(Bert, config)
  writes = found['attend'] == 'causal' and found['words'] and found['sharing'] == 'none'
  return (Causal if writes else Bert)(**found)


def fields(model: type[nn.Module], config, **only: Any) -> dict[str, Any]:
  """Returns the fields of a model from its `config.model`, which also has name, family and size;
  `only` are those that it has one value of.

  Raises UserError: as `given_fields`; an unknown choice, groups that do not fit, a head of answers
  beside others, a pooler that is left out, or an id of [PAD] that no vocabulary has said.
  """
  fields = given_fields(model, config)
  choose(fields['attend'], get_args(Attend), 'config.model.attend')
  answers_lib.check(fields)
  if fields['pooler'] and fields['pooler_activation'] == 'none':
    raise UserError(
      "config.model.pooler_activation='none' leaves the pooler out: set config.model.pooler=False"
    )
  pad_id.check(fields['position_offset'], fields['zero_row'])
  check_sharing(*(fields[key] for key in ('sharing', 'layers', 'groups', 'inner_groups')))
  for key, wanted in only.items():
    if fields[key] != wanted:
      raise UserError(f'config.model.{key}: {model.__name__} has {wanted!r}, got {fields[key]!r}')
  return fields


MODEL = Factory(options_of(Bert), make)
