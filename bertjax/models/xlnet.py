"""XLNet: two streams over permuted orders, relative positions and segments, memory.

Yang et al. 2019; zihangdai/xlnet, modeling.py. The content stream h is a Transformer-XL whose order
is the batch's; the query stream g asks what stands at the predicted slots without seeing it. Both
are one array x_BXD, see `layers/two_streams.py`.

One difference from the original: the dropout of the position table is the same for all rows.
"""

from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bertjax.errors import UserError
from bertjax.field_types import Fraction, Natural, Positive
from bertjax.kernels.dropout import Noise
from bertjax.kernels.look_up import look_up
from bertjax.kernels.relative_attention import Mask
from bertjax.models.layers import answers as answers_lib
from bertjax.models.layers import flops as flops_lib
from bertjax.models.layers import memory as memory_lib
from bertjax.models.layers.answers import AnswerHead, Answers
from bertjax.models.layers.basic import (
  INITS,
  Dropout,
  Initializer,
  given_fields,
  options_of,
  param,
  word_table,
)
from bertjax.models.layers.contracts import LabelModel, Remembering, Sized
from bertjax.models.layers.encoder import scanned
from bertjax.models.layers.heads import (
  Head,
  WordHead,
  declared,
  label_flops,
  label_heads,
  pool,
  pooler,
)
from bertjax.models.layers.memory import Memory
from bertjax.models.layers.positions import DistanceTable, query_biases
from bertjax.models.layers.two_streams import Layer, Streams, make_slots, seen_pairs
from bertjax.types import Array, Batch, Factory, Part

MEMORY_ORDER = -2  # below every query's


class XLNet(Sized, Remembering, kw_only=True):
  """The model of `objectives/plm.py`; fields are `config.model`.

  Attributes:
    mem_len: M, places of memory; 0: none.
    reuse_len: tokens at the beginning of a row that memory keeps.
    clamp_len: the largest distance told apart; 0: all are.
    untie_r: every layer has its own query biases.
    words: whether there is a head for the vocabulary; an encoder alone has none.
    labels, token_labels, head_dropout, answers: see `bert.Base`; with labels there are no words.
    pooling: of which token labels of examples are, the last one: rows end in [CLS].
  """

  mem_len: Natural
  reuse_len: Natural
  clamp_len: Natural = 0
  untie_r: bool
  words: bool = True
  labels: tuple[tuple[str, Natural], ...] = ()
  token_labels: tuple[tuple[str, Natural], ...] = ()
  head_dropout: Fraction = 0.0
  answers: Answers = 'none'
  pooling: Literal['last'] = 'last'
  attention_dropout: Fraction
  initializer: Initializer
  init_std: Positive

  frame = 'cls_last'

  @nn.compact
  def __call__(
    self,
    batch: Batch,
    carry: Memory | tuple[()] = (),
    noise: Noise | None = None,
    hidden: bool = False,
  ):
    """Runs the streams and, where there are targets, the head. Returns dict with last_BTD, the
    content stream; carry, for the next batch; with words word, the vocabulary's `Scores` at the
    slots or, without targets, at every token; hidden_LBXD and embedded_BXD if asked. Reads token,
    type and example; order_q and order_k, without which every token sees all of its example;
    target_pos and weight, without which there is no query stream, as in fine-tuning; direction."""
    dtype, init = jnp.dtype(self.dtype), INITS[self.initializer](self.init_std)
    word_VE = word_table(self, 'word', self.vocab_size, self.width, init)
    x_BXD = look_up(word_VE, batch['token_BT']).astype(dtype)
    x_BXD = Dropout(self.dropout, name='dropout')(x_BXD, noise)
    length, predicts = x_BXD.shape[1], 'target_pos_BP' in batch
    # Declared in either case: fine-tuning keeps the parameters of pretraining. TensorFlow's default
    # for a variable of shape [1, 1, D].
    glorot = jax.nn.initializers.glorot_uniform()
    vector = lambda key, shape, dtype: glorot(key, (1, *shape), dtype)[0]
    mask_D = param(self, 'mask', ('norm',), (self.width,), vector)
    if predicts:
      shape = (*batch['target_pos_BP'].shape, self.width)
      g_BPD = jnp.broadcast_to(mask_D.astype(dtype), shape)
      g_BPD = Dropout(self.dropout, name='query_dropout')(g_BPD, noise)
      x_BXD = jnp.concatenate([x_BXD, g_BPD], 1)
    x_BXD = nn.with_logical_constraint(x_BXD, ('batch', 'length', 'embed_act'))
    streams = self._streams(batch, carry, noise, predicts)
    embedded_BXD = x_BXD
    x_BXD, (hidden_BLMD, hidden_LBXD) = self._layers(x_BXD, streams, noise, carry, hidden)

    h_BTD, g_BPD = x_BXD[:, :length], x_BXD[:, length:]
    last = Dropout(self.dropout, name='output_dropout')
    out: dict[str, Any] = dict(last_BTD=h_BTD if predicts else last(h_BTD, noise))
    out['carry'] = memory_lib.remembered(carry, hidden_BLMD, batch['example_BT'], self.reuse_len)
    if self.words:
      head = WordHead(self.vocab_size, init, dtype, name='head')
      # Without a query stream every token is scored by what stands at it, as transformers does.
      out['word'] = head(last(g_BPD, noise) if predicts else out['last_BTD'], word_VE)
    if hidden:
      out |= dict(hidden_LBXD=hidden_LBXD, embedded_BXD=embedded_BXD)
    return out

  @property
  def output_heads(self) -> tuple[Head, ...]:
    """The heads that its fields ask for."""
    return declared(self, word='head')

  def read(self, batch: Batch, hidden: bool = True) -> dict[str, Any]:
    """Runs the content stream alone, without memory or dropout: for export and use."""
    content = {key: x for key, x in batch.items() if key != 'target_pos_BP'}
    out = self(content, hidden=hidden)
    named = dict(hidden_LBXD='hidden_LBTD', embedded_BXD='embedded_BTD')
    return {named.get(key, key): x for key, x in out.items()}

  def word_scores(self, batch: Batch) -> Any:
    """Returns the query stream's scores at the targets, which nobody else sees."""
    length = batch['token_BT'].shape[1]
    slot_BPT = batch['target_pos_BP'][..., None] == jnp.arange(length)[None, None]
    hidden_BT = jnp.any(slot_BPT & (batch['weight_BP'][..., None] > 0), 1)
    orders = dict(order_q_BT=jnp.ones_like(batch['token_BT']), order_k_BT=2 * hidden_BT)
    return self(dict(batch, **orders))['word']

  def _streams(self, batch: Batch, memory, noise, predicts: bool) -> Streams:
    example_BT, example_BS = batch['example_BT'], memory_lib.keys(memory, batch['example_BT'])
    length, keys = example_BT.shape[1], example_BS.shape[1]
    before = ((0, 0), (keys - length, 0))
    orders: dict[str, Any] = {}
    if 'order_q_BT' in batch:
      order_BS = jnp.pad(batch['order_k_BT'], before, constant_values=MEMORY_ORDER)
      orders = dict(order_q_BT=batch['order_q_BT'], order_k_BS=order_BS)
    query, slots = None, None
    if predicts:
      query = Mask(example_BT, example_BS, **orders)
      slots = make_slots(batch['target_pos_BP'], batch['weight_BP'] > 0, length)
    # The originals have one row more than distances.
    direction_B = batch.get('direction_B')
    last = -length if direction_B is None else -keys - 1
    table = DistanceTable(self.dropout, jnp.dtype(self.dtype), name='table')
    table_RD = table(np.arange(keys, last, -1), self.width, self.clamp_len, noise)
    biases = None
    if not self.untie_r:
      shape, init = (self.heads, self.width // self.heads), INITS[self.initializer](self.init_std)
      biases = query_biases(self, 'uwz', shape, init)
    return Streams(
      Mask(example_BT, example_BS, **orders, see_self=True), query, slots, table_RD, direction_B,
      batch['type_BT'], jnp.pad(batch['type_BT'], before), biases,
    )  # fmt: skip

  def _layers(self, x_BXD: Array, streams: Streams, noise, memory, hidden: bool) -> Any:
    layer: dict[str, Any] = dict(
      heads=self.heads, ffn=self.ffn, activation=self.activation, norm_eps=self.norm_eps,
      dropout=self.dropout, inner_dropout=self.dropout, attention_dropout=self.attention_dropout,
      attention_bias=False, positions=True, nested=True, reuse_len=self.reuse_len, hidden=hidden,
      initializer=INITS[self.initializer](self.init_std), dtype=jnp.dtype(self.dtype),
    )  # fmt: skip
    stack = scanned(self, Layer, noise)(**layer, name='layers')
    hidden_BLMD = memory.hidden_BLMD if memory else None
    return stack(x_BXD, streams, noise, hidden_BLMD, jnp.arange(self.layers))

  @nn.nowrap
  def flops(self, batch: Batch) -> float:
    """Counts model FLOPs with a full memory, see `Model.flops`."""
    predicted = flops_lib.targets(batch)
    rows, length = np.shape(batch['example_BT'])
    square, ffn = self.width * self.width, 2 * self.width * self.ffn
    content, query = seen_pairs(batch, self.mem_len)
    each = flops_lib.head_flops(flops_lib.real(batch), 4 * square + ffn)
    each += flops_lib.head_flops(predicted, 2 * square + ffn)
    # No gradient reaches the memory or the position table, so their projections cost 4 each.
    far = 2 * (length + self.mem_len) if 'direction_B' in batch else 2 * length + self.mem_len
    each += flops_lib.head_flops(rows * self.mem_len * 2 / 3, 2 * square)
    each += flops_lib.head_flops(far * 2 / 3, square)
    each += 18.0 * self.width * (content + query)  # by content, by distance, and of values
    head = flops_lib.head_flops(predicted, self.width * self.vocab_size)
    return self.layers * each + head


class Labelled(XLNet, LabelModel):
  """The content stream alone, with heads for labels: XLNet as it is fine-tuned."""

  divides_columns = True  # neither memory nor slots stand beside the columns of a row

  @nn.compact
  def __call__(self, batch: Batch, noise: Noise | None = None, hidden: bool = False):
    """Runs the model, see `LabelModel`. Reads token, type, example; with labels first, each [CLS].
    An example's [CLS] goes through dense, tanh and dropout (zihangdai/xlnet, modeling.py:
    summarize_sequence)."""
    init = INITS[self.initializer](self.init_std)
    content = {key: x for key, x in batch.items() if not key.endswith('_BP')}
    found = super().__call__(content, (), noise, hidden)
    x_BTD = found['last_BTD']
    out = dict(last_BTD=x_BTD)
    if hidden:
      out |= dict(hidden_LBTD=found['hidden_LBXD'], embedded_BTD=found['embedded_BXD'])
    read_BGD = pooler(self, pool(x_BTD, batch, self.pooling), init) if self.labels else None
    tokens = x_BTD if self.token_labels else None
    out |= label_heads(self, init, noise, read_BGD, tokens, ('head_dropout', ''))
    if self.answers != 'none':
      head = AnswerHead(
        self.answers, 0, self.norm_eps, init, self.head_dropout, jnp.dtype(self.dtype),
        name='answers',
      )  # fmt: skip
      out['answers'] = head(x_BTD, batch, noise)
    return out

  def read(self, batch: Batch, hidden: bool = True) -> dict[str, Any]:
    """Runs the model on a batch without dropout: for export and use."""
    return self(batch, None, hidden)

  @nn.nowrap
  def flops(self, batch: Batch) -> float:
    """Counts model FLOPs, see `Model.flops`: one stream, each token sees all of its example."""
    example_BT, square = batch['example_BT'], self.width * self.width
    each = flops_lib.head_flops(flops_lib.real(batch), 4 * square + 2 * self.width * self.ffn)
    each += flops_lib.head_flops(2 * example_BT.shape[1] * 2 / 3, square)  # the position table's
    each += 18.0 * self.width * flops_lib.attended_pairs(example_BT)
    count = self.layers * each + label_flops(self, batch, square)
    return count + answers_lib.flops(self.answers, self.width, batch)


def make(config) -> XLNet:
  """Builds the model from `config.model`: with labels the one for fine-tuning. Raises UserError: as
  `given_fields`; an odd width, a memory that remembers nothing, labels beside words, or a head of
  answers beside others."""
  fields = given_fields(XLNet, config)
  if fields['width'] % 2:
    raise UserError(f'model.width: expected an even number, got {fields["width"]}')
  if fields['mem_len'] < 0 or (fields['mem_len'] and fields['reuse_len'] < 1):
    raise UserError(
      f'memory is kept of the first model.reuse_len tokens: expected model.mem_len >= 0 and '
      f'reuse_len >= 1, got {fields["mem_len"]} and {fields["reuse_len"]}'
    )
  answers_lib.check(fields)
  labels = (*fields['labels'], *fields['token_labels'])
  if labels and fields['words']:
    raise UserError(
      f'XLNet has words or labels: expected config.model.words=False with {labels!r}, got True'
    )
  tuned = labels or fields['answers'] != 'none'
  return (Labelled if tuned else XLNet)(**fields)


# Fine-tuning begins with the content stream, without memory.
MODEL = Factory(options_of(XLNet), make, tuned=Part(lambda model: dict(model, mem_len=0)))
