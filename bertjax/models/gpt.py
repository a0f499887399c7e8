"""GPT and GPT-2: transformers that write from left to right.

Radford et al. 2018 (openai/finetune-transformer-lm, train.py) and 2019 (openai/gpt-2, model.py).
GPT-1 has norms behind what they serve and one table: the words, its special tokens among them, then
the positions. Look-up and softmax read the same table, dropped once a step, so that the softmax
has a row for each position too. GPT-2 has norms before, one more at the end, a table of positions
of its own, and no dropout of tables in the original. Labels of examples are read off the last token
of each (GPT paper, section 3.2).
"""

from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bertjax.errors import UserError
from bertjax.field_types import Count, Fraction, Natural, Positive
from bertjax.kernels.cross_entropy import Scores, logits
from bertjax.kernels.dropout import Noise
from bertjax.kernels.look_up import look_up
from bertjax.models.layers import flops as flops_lib
from bertjax.models.layers.attend import example_mask
from bertjax.models.layers.basic import (
  Dropout,
  Norm,
  given_fields,
  options_of,
  small_table,
  word_table,
)
from bertjax.models.layers.block import Block, Context
from bertjax.models.layers.cache import Caches, Reading
from bertjax.models.layers.contracts import LabelModel, Sized, StreamModel
from bertjax.models.layers.encoder import ended, one_by_one, scanned
from bertjax.models.layers.heads import (
  RIGHT,
  Head,
  WordHead,
  declared,
  label_flops,
  label_heads,
  pool,
)
from bertjax.models.layers.writing import OneText
from bertjax.types import Array, Batch, Factory

# test, tiny, mini: ours. gpt1: the paper, section 4.1. The others: GPT-2's paper, table 2, whose
# 1542M is xl.
SIZES: dict[str, dict[str, int]] = {
  'test': dict(layers=2, width=64, heads=8, ffn=256, positions=64),
  'tiny': dict(layers=4, width=128, heads=4, ffn=512, positions=128),
  'mini': dict(layers=4, width=256, heads=4, ffn=1024, positions=256),
  'gpt1': dict(layers=12, width=768, heads=12, ffn=3072, positions=512),
  'small': dict(layers=12, width=768, heads=12, ffn=3072, positions=1024),
  'medium': dict(layers=24, width=1024, heads=16, ffn=4096, positions=1024),
  'large': dict(layers=36, width=1280, heads=20, ffn=5120, positions=1024),
  'xl': dict(layers=48, width=1600, heads=25, ffn=6400, positions=1024),
}


class GPT(Sized, StreamModel, OneText, kw_only=True):
  """The model of `objectives/lm.py`; fields are `config.model`.

  Attributes:
    positions: of the longest row.
    norms: 'after' what they serve (GPT-1) or 'before' it, with one more at the end (GPT-2).
    one_table: positions are rows of the word table, behind the words, and of the softmax (GPT-1).
    embedding_dropout: of the table, once a step, with one_table; of its vectors without.
    dropout, attention_dropout: of what layers add, and of the probabilities.
    init_std, position_std: of tables and kernels, and of the table of positions.
    residual_scaled: whether kernels of what layers add have init_std / sqrt(2 L) (transformers and
      the paper; not OpenAI's code).
    labels, token_labels, head_dropout: see `bert.Base`; the head of classes has no bias.
    pooling: of which token labels of examples are, the one at the end.
    both_orders: a pair of texts is read in both orders, whose states at the end are summed
      (similarity, GPT paper, section 3.3).
  """

  positions: Count
  norms: Literal['after', 'before']
  one_table: bool
  embedding_dropout: Fraction
  attention_dropout: Fraction
  init_std: Positive
  position_std: Positive
  residual_scaled: bool
  labels: tuple[tuple[str, Natural], ...] = ()
  token_labels: tuple[tuple[str, Natural], ...] = ()
  head_dropout: Fraction = 0.0
  pooling: Literal['end'] = 'end'
  both_orders: bool = False

  has_segments = False

  @nn.compact
  def __call__(
    self, batch: Batch, carry: Any = (), noise: Noise | None = None, hidden: bool = False
  ):
    """Runs the model, see `StreamModel`. Reads token, position and example."""
    x_BTD, table_VE = self._embedded(batch, noise)
    embedded_BTD = x_BTD
    mask = example_mask(batch, 'causal')
    stack = scanned(self, Block, noise)(**self._layer(hidden), name='layers')
    x_BTD, (_, hidden_LBTD) = stack(x_BTD, Context(mask), noise, None, jnp.arange(self.layers))
    x_BTD, word = self._scores(x_BTD, table_VE)
    out: dict[str, Any] = dict(word=word, last_BTD=x_BTD, carry=carry)
    if hidden_LBTD is not None:
      out |= dict(hidden_LBTD=ended(hidden_LBTD, x_BTD), embedded_BTD=embedded_BTD)
    return out

  def continued(self, batch: Batch, reading: Reading, caches: Caches) -> tuple[Array, Caches]:
    """Reads new columns of a text; see `OneText`."""
    x_BTD, table_VE = self._embedded(batch, None)
    layers = self.get_variable('params', 'layers')
    block = Block(**self._layer(False), parent=None)
    x_BTD, caches = one_by_one(layers, block, x_BTD, reading, caches)
    scores = logits(self._scores(x_BTD[:, -1:], table_VE)[1])[:, 0]
    own = jnp.arange(scores.shape[-1]) < self.vocab_size  # no position is written
    return jnp.where(own[None], scores, -jnp.inf), caches

  def _scores(self, x_BTD: Array, table_VE: Array) -> tuple[Array, Scores]:
    """Returns the last states, and the words behind each column."""
    dtype, init = jnp.dtype(self.dtype), jax.nn.initializers.normal(self.init_std)
    if self.norms == 'before':
      x_BTD = Norm(self.norm_eps, dtype, name='final_norm')(x_BTD)
    rows = self.vocab_size + self._own_rows
    head = WordHead(rows, init, dtype, word_bias=False, name='head')
    return x_BTD, head(x_BTD, table_VE)

  def _embedded(self, batch: Batch, noise: Noise | None) -> tuple[Array, Array]:
    """x_BTD and the table of the softmax."""
    init = jax.nn.initializers.normal
    dropout = Dropout(self.embedding_dropout, self.one_table, name='dropout')
    rows = self.vocab_size + self._own_rows
    word_VE = word_table(self, 'word', rows, self.width, init(self.init_std))
    if self.one_table:
      word_VE = dropout(word_VE, noise)
      x_BTD = look_up(word_VE, batch['token_BT'])
      x_BTD = x_BTD + look_up(word_VE, batch['position_BT'] + self.vocab_size)
    else:
      shape = (self.positions, self.width)
      position_XE = small_table(self, 'position', 'position', shape, init(self.position_std))
      x_BTD = look_up(word_VE, batch['token_BT']) + position_XE[batch['position_BT']]
      x_BTD = dropout(x_BTD, noise)
    x_BTD = x_BTD.astype(jnp.dtype(self.dtype))
    return nn.with_logical_constraint(x_BTD, ('batch', 'length', 'embed_act')), word_VE

  @property
  def _own_rows(self) -> int:
    """The rows of the word table that are positions."""
    return self.positions if self.one_table else 0

  @nn.nowrap
  def _layer(self, hidden: bool) -> dict[str, Any]:
    """Returns the fields of `Block`."""
    init, out_std = jax.nn.initializers.normal, self.init_std
    if self.residual_scaled:
      out_std /= (2 * self.layers) ** 0.5
    return dict(
      heads=self.heads, ffn=self.ffn, activation=self.activation, norm_eps=self.norm_eps,
      norm_place=self.norms, dropout=self.dropout, attention_dropout=self.attention_dropout,
      initializer=init(self.init_std), out_initializer=init(out_std), hidden=hidden,
      dtype=jnp.dtype(self.dtype),
    )  # fmt: skip

  @property
  def words(self) -> bool:
    """True if words are among the heads: of a model that writes, and of one of choices."""
    return not (self.labels or self.token_labels) or RIGHT in dict(self.labels)

  @property
  def output_heads(self) -> tuple[Head, ...]:
    """The heads that its fields ask for; that of words has no parameters of its own."""
    return declared(self, word='')

  @nn.nowrap
  def flops(self, batch: Batch) -> float:
    """Counts model FLOPs, see `Model.flops`: each token sees itself and what comes before it."""
    return self._layer_flops(batch) + self.word_flops(flops_lib.targets(batch))

  @nn.nowrap
  def word_flops(self, predicted: float) -> float:
    """Counts model FLOPs, see `Model.flops`, of the scores of words at so many places."""
    return flops_lib.head_flops(predicted, self.width * (self.vocab_size + self._own_rows))

  @nn.nowrap
  def _layer_flops(self, batch: Batch) -> float:
    example_BT = np.asarray(batch['example_BT'])
    return self.layers * flops_lib.block_flops(example_BT, self.width, self.ffn, causal=True)


class Labelled(GPT, LabelModel):
  """GPT with heads for labels, as it is fine-tuned."""

  frame = 'end'
  scores_next = True

  @nn.compact
  def __call__(self, batch: Batch, noise: Noise | None = None, hidden: bool = False):
    """Runs the model, see `LabelModel`; word besides, the `Scores` at every column. Reads token,
    position, example and, with labels, first: the last token of each example."""
    found = super().__call__(batch, (), noise, hidden)
    del found['carry']
    x_BTD = found['last_BTD']
    read_BGD = pool(x_BTD, batch, self.pooling) if self.labels else None
    if read_BGD is not None and self.both_orders:
      read_BGD = jnp.broadcast_to(jnp.sum(read_BGD, 1, keepdims=True), read_BGD.shape)
    init = jax.nn.initializers.normal(self.init_std)
    tokens = x_BTD if self.token_labels else None
    # As in the original, and in transformers, whose head of classes has none.
    bias = RIGHT in dict(self.labels)
    return found | label_heads(self, init, noise, read_BGD, tokens, text_bias=bias)

  def read(self, batch: Batch, hidden: bool = True) -> dict[str, Any]:
    """Runs the model on a batch without dropout: for export and use; words where they are a
    head."""
    found = self(batch, None, hidden)
    return {key: x for key, x in found.items() if key != 'word' or self.words}

  @nn.nowrap
  def flops(self, batch: Batch) -> float:
    """Counts model FLOPs, see `Model.flops`, without `word_flops`."""
    return self._layer_flops(batch) + label_flops(self, batch, 0)


def make(config) -> GPT:
  """Builds the model from `config.model`: with labels the one for fine-tuning. Raises UserError:
  see `given_fields`; both orders of choices."""
  fields = given_fields(GPT, config)
  if fields['both_orders'] and RIGHT in dict(fields['labels']):
    raise UserError(
      'model.both_orders is of pairs of texts that have a label, and the texts of a choice have an '
      'order: expected model.both_orders=False'
    )
  tuned = fields['labels'] or fields['token_labels']
  return (Labelled if tuned else GPT)(**fields)


MODEL = Factory(options_of(GPT), make)
