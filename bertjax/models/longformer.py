"""Longformer: a BERT for long rows, whose tokens see a window and a few that see everything.

Beltagy et al. 2020 (arXiv 2004.05150); allenai/longformer. A token sees `window` others on each
side and the global tokens of its example, in one softmax. A global token sees all of its example by
projections of its own, which begin as copies of the others, and takes what these give in place of
what the window gave. Masked words have no global token (scripts/convert_model_to_long.ipynb); the
first token of a text that is labelled is one, and all tokens of a question.

As an operation of attention the global tokens' keys are memory before the row that the window does
not hide (`Mask.sinks`), and their queries are a second, small one: both grow linearly with the row.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bertjax.errors import UserError
from bertjax.field_types import Count, Natural
from bertjax.kernels.dropout import fork
from bertjax.kernels.relative_attention import Mask
from bertjax.models import bert
from bertjax.models.layers import flops as flops_lib
from bertjax.models.layers.attention import Attention
from bertjax.models.layers.basic import Dense, options_of
from bertjax.models.layers.block import Block
from bertjax.models.layers.encoder import Encoder
from bertjax.types import Array, Batch, Factory, Part

GLOBAL = dict(global_query='query', global_key='key', global_value='value')


class Seen(NamedTuple):
  """Tells layers, besides the hidden states, the keys that tokens see, and, if there are global
  tokens, their columns, T in unused slots, and the keys that they see."""

  mask: Mask
  column_BC: Array | None = None
  global_mask: Mask | None = None


class Layer(Block):
  """A block whose attention has a window and, with `Seen.column_BC`, global tokens."""

  global_: bool = False  # whether there are projections of global tokens

  def attend(
    self, attention: Attention, x_BTD: Array, seen_BSD: Array, context: Seen, noise, layer: Array
  ) -> Array:
    """Returns the output of attention, before its dropout and the residual."""
    q_BTNH, k_BTNH, v_BTNH = (
      project(x_BTD) for project in (attention.query, attention.key, attention.value)
    )
    shape, column_BC = q_BTNH.shape[2:], context.column_BC
    own = {
      name: Dense(shape, ('embed', 'heads', 'head'), self.initializer, dtype=self.dtype, name=name)
      for name in GLOBAL
      if self.global_
    }
    if column_BC is None or context.global_mask is None:
      for dense in own.values():
        if self.is_initializing():
          dense(x_BTD)
      y_BTNH = attention.attend(q_BTNH, k_BTNH, v_BTNH, context.mask, None, noise, layer)
      return attention.out(y_BTNH)
    k_BSNH, v_BSNH = (jnp.concatenate([picked(x, column_BC), x], 1) for x in (k_BTNH, v_BTNH))
    y_BTNH = attention.attend(q_BTNH, k_BSNH, v_BSNH, context.mask, None, noise, layer)
    q_BCNH = own['global_query'](picked(x_BTD, column_BC))
    k_BTNH, v_BTNH = own['global_key'](x_BTD), own['global_value'](x_BTD)
    noise = fork(noise, 'global')
    y_BCNH = attention.attend(q_BCNH, k_BTNH, v_BTNH, context.global_mask, None, noise, layer)
    row_B1 = jnp.arange(len(column_BC))[:, None]
    return attention.out(y_BTNH.at[row_B1, column_BC].set(y_BCNH, mode='drop'))


class Longformer(bert.Bert, kw_only=True):
  """The model, with BERT's heads.

  Attributes:
    window: tokens that each sees on either side.
    global_tokens: global tokens of a row at most, of a model that has them, and then projections of
      theirs; None: those of the task that it is trained on, [CLS] and the longest question. 0:
      none.
  """

  window: Count = 256
  global_tokens: Natural | None = 0

  @property
  def reach(self) -> int:
    """The distance from which on a token sees no other."""
    return self.window + 1

  def net(self, batch: Batch) -> tuple[Encoder, Seen]:
    """Returns the layers and what they see, see `Bert.net`."""
    layer = self.encoder_fields()['layer'] | dict(global_=self.global_tokens != 0)
    return Encoder(self.layers, self.remat, layer, block=Layer, name='encoder'), self._seen(batch)

  def _seen(self, batch: Batch) -> Seen:
    mask, global_BT = self.mask(batch), self.global_of(batch)
    if global_BT is None:
      return Seen(mask)
    length = global_BT.shape[1]
    first_BC = jnp.argsort(~global_BT, 1, stable=True)[:, : self._slots(batch)]
    column_BC = jnp.where(jnp.take_along_axis(global_BT, first_BC, 1), first_BC, length)
    example_BT = batch['example_BT']
    example_BC = picked(example_BT, column_BC)
    row_B1 = jnp.arange(len(column_BC))[:, None]
    moved_BT = jnp.zeros_like(global_BT).at[row_B1, column_BC].set(True, mode='drop')
    keys_BS = jnp.concatenate([example_BC, jnp.where(moved_BT, 0, example_BT)], 1)
    local = dataclasses.replace(mask, example_k_BS=keys_BS, sinks=column_BC.shape[1])
    return Seen(local, column_BC, Mask(example_BC, example_BT))

  def _slots(self, batch: Batch) -> int:
    by_text = self.labels and 'global_BT' not in batch
    most = batch['first_BG'].shape[1] if by_text else self.global_tokens
    return min(most, batch['example_BT'].shape[1])

  def global_of(self, batch: Batch) -> Array | None:
    """Returns the global tokens, bool [B, T]: those that `global_BT` of the batch says; else those
    before the first [SEP], the last token of a row, where answers to questions are scored, and the
    first of each text with a label. None: there are none."""
    if self.global_tokens == 0:
      return None
    real_BT = jnp.asarray(batch['example_BT']) > 0
    if 'global_BT' in batch:
      return real_BT & (jnp.asarray(batch['global_BT']) > 0)
    if any(name == 'span' for name, _ in self.token_labels):
      token_BT, last_B1 = jnp.asarray(batch['token_BT']), jnp.sum(real_BT, 1, keepdims=True) - 1
      sep_BT = token_BT == jnp.take_along_axis(token_BT, jnp.maximum(last_B1, 0), 1)
      return real_BT & (jnp.cumsum(sep_BT, 1) == 0)
    if self.labels:
      row_B1 = jnp.arange(len(real_BT))[:, None]
      return real_BT & jnp.zeros_like(real_BT).at[row_B1, batch['first_BG']].set(True)
    return None

  def attends(self, out: Mapping[str, Any], batch: Batch, layer: int) -> Array:
    """Computes the weights of a layer, see `AttendingModel`. UserError: there are global tokens,
    whose weights are of other projections."""
    if self.global_of(batch) is not None:
      raise UserError(
        'texts with global tokens have two kinds of weights: expected a model of masked words, '
        'got one with labels or answers'
      )
    return super().attends(out, batch, layer)

  @nn.nowrap
  def net_flops(
    self, batch: Batch, table_width: int, *, layers: int, width: int, ffn: int
  ) -> float:
    """FLOPs of layers with their window; of global tokens as if each saw, and was seen by, all."""
    count = super().net_flops(batch, table_width, layers=layers, width=width, ffn=ffn)
    global_BT = self.global_of(batch)
    if global_BT is None:
      return count
    global_BT = np.asarray(global_BT)
    real_BT, few = np.asarray(batch['example_BT']) > 0, int(global_BT.sum())
    pairs = 2 * int((real_BT.sum(1) * global_BT.sum(1)).sum())
    projected = flops_lib.head_flops(2 * int(real_BT.sum()) + few, width * width)
    return count + layers * (projected + 12.0 * width * pairs)


def picked(x: Array, column_BC: Array) -> Array:
  """Returns the columns of x, [B, C, ..]; zeros where there is no such column."""
  return jax.vmap(lambda x, column_C: x.at[column_C].get(mode='fill', fill_value=0))(x, column_BC)


def tiled(table_TE: Any, offset: int, rows: int) -> np.ndarray:
  """Returns a table of positions in so many rows: those before `offset` stay, those from it on are
  repeated from the first (convert_model_to_long.ipynb)."""
  table_TE = np.asarray(table_TE)
  place = np.arange(rows - offset) % (len(table_TE) - offset)
  return np.concatenate([table_TE[:offset], table_TE[offset:][place]])


def _begun(model: Any, other: Mapping[str, Any]) -> Part:
  """Returns the way from a BERT, RoBERTa or Longformer, `other`, to a run's model: its positions
  repeated as far as that has them, without projections of global tokens, which masked words do not
  train."""
  own = dict(
    name='longformer', family='longformer', positions=model.positions, window=model.window,
    global_tokens=0,
  )  # fmt: skip

  def select(params: Mapping[str, Any]) -> Mapping[str, Any]:
    table_TE = tiled(params['embeddings']['position'], other['position_offset'], model.positions)
    return dict(
      _with_global(params, False), embeddings=dict(params['embeddings'], position=table_TE)
    )

  return Part(lambda given: {**given, **own}, select)


def _with_global(params: Mapping[str, Any], wanted: bool = True) -> Mapping[str, Any]:
  """Returns the parameters with projections of global tokens, copied from the others where they
  lack them, or without."""
  layers = params['encoder']['layers']
  found = {name: layers['attention'][local] for name, local in GLOBAL.items()} if wanted else {}
  kept = {name: x for name, x in layers.items() if wanted or name not in GLOBAL}
  return dict(params, encoder=dict(params['encoder'], layers={**found, **kept}))


def _of_task(model: Any, task: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the global tokens of a task's rows, where the model leaves them to it."""
  return dict(global_tokens=task.get('question', 0) + 1) if model.global_tokens is None else {}


MODEL = Factory(
  options_of(Longformer),
  # Layers that share, or another `attend`, have no window.
  lambda config: Longformer(**bert.fields(Longformer, config, sharing='none', attend='example')),
  tuned=Part(lambda model: dict(model, global_tokens=None), _with_global),
  begins=dict.fromkeys(('bert', 'longformer'), _begun),
  of_task=_of_task,
)
