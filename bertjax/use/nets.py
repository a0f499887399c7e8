"""A model and what it can do, by the contract of models (`models/layers/contracts.py`).

A batch is `bertjax.text.sentences.as_batch`'s: one text a row, in segment 0, no memory.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bertjax import models
from bertjax.errors import UserError, amount
from bertjax.models.layers.contracts import AttendingModel, Model, TargetModel, WritingModel
from bertjax.models.layers.heads import Head, gather_positions
from bertjax.text.sentences import Frame, bert_frame, causal_frame
from bertjax.types import Array, Batch, Variables
from bertjax.use.answers import Pool

SPAN = ('left', 'right', 'offset')  # `<name>_BP`, which a boundary head reads


@dataclasses.dataclass(frozen=True)
class Net:
  """A model for texts that each stand for themselves."""

  name: str  # `config.model.name`
  model: Model  # the module
  heads: tuple[Head, ...]  # those whose parameters are there
  room: int | None  # columns that it takes at most; None: any number
  frame: Frame  # special tokens around a text
  writer: WritingModel | None  # the module that writes with these parameters, if any does

  def can(self, *kinds: str) -> bool:
    """Returns whether it has a head of one of these kinds; see `Head`."""
    return any(head.kind in kinds for head in self.heads)

  @property
  def unmasks(self) -> bool:
    """True if it predicts masked words from both sides, so that it may write in their place."""
    return isinstance(self.model, TargetModel) and not self.model.causal and self.can('word')

  @property
  def answers(self) -> bool:
    """True if it has a head for the answers to questions."""
    return any(head.kind == 'answers' or head[:2] == ('token', 'span') for head in self.heads)

  def words(self, variables: Variables, batch: Batch) -> Any:
    """Returns the scores of the vocabulary at the slots of the batch."""
    return self.model.apply(variables, batch, method='word_scores')

  def read(self, variables: Variables, batch: Batch, hidden: bool = False) -> Any:
    """Returns the outputs, see `Model.read`."""
    return self.model.apply(variables, batch, hidden, method='read')

  def spans(self, variables: Variables, batch: Batch) -> Any:
    """Returns what answers are decoded from: float32 logits of both their ends [B, T, 2], or a
    `Beam`."""
    out = self.read(variables, batch)
    return out['answers'] if 'answers' in out else out['token_label_BTC']['span']

  @functools.cached_property
  def _states(self) -> Any:
    return jax.eval_shape(lambda v, b: self.read(v, b, True), shapes(self), inputs(self))

  @property
  def layers(self) -> int:
    """Number of layers with an output."""
    return len(self._states['hidden_LBTD'])

  @property
  def width(self) -> int:
    """D of the outputs."""
    return self._states['last_BTD'].shape[-1]


def make(config: Any, special: Mapping[str, int | None], beside: Sequence[Any] = ()) -> Net:
  """Builds the model that a `config.model` with a vocabulary size asks for; `special` has the id of
  each role; of `beside`, other models of the same parameters, one may write where this does not.
  Raises UserError if there is no such model, or one that keeps no contract."""
  model = models.build(config)
  if not isinstance(model, Model):
    raise UserError(
      f'config.model.name={config.name!r} is used by commands once its class is a Model of '
      f'bertjax.models.layers.contracts, got {type(model).__name__}'
    )
  frame = _frame(model.frame, special)
  writes = (m for m in (model.alone(), *map(models.build, beside)) if isinstance(m, WritingModel))
  return Net(config.name, model.alone(), model.output_heads, model.room, frame, next(writes, None))


def without(net: Net, made: Sequence[str]) -> Net:
  """Returns the net without the heads whose parameters lie at the paths `made`: they are not the
  model's own, which had none there."""
  tops = {path.partition('/')[0] for path in made}
  kept = tuple(head for head in net.heads if not tops & {head.path, head.through})
  return dataclasses.replace(net, heads=kept)


def _frame(kind: str, special: Mapping[str, int | None]) -> Frame:
  if kind == 'cls':
    frame, ended = bert_frame(special), special.get('eos') is not None  # by the vocabulary
    return frame._replace(after=()) if ended else frame
  if kind == 'end':
    return bert_frame(special)._replace(stands_last=True)
  if kind == 'cls_last':
    after = tuple(i for role in ('sep', 'cls') if (i := special[role]) is not None)
    return Frame((), after, last_type=2, stands_last=True)
  return causal_frame(special)


def inputs(net: Net) -> dict[str, Any]:
  """Returns the shapes of a batch of all that any model reads."""
  names = ('token', 'example', 'type', 'position', *net.model.tables)
  slots = [(name, 'BP') for name in ('target_pos', 'target', *SPAN)]
  second = [(f'out_{name}', 'BU') for name in ('token', 'example', 'position')]
  named = [*((name, 'BT') for name in names), *slots, *second, ('first', 'BG')]
  batch = {f'{name}_{axes}': jax.ShapeDtypeStruct((1, 8), jnp.int32) for name, axes in named}
  if most := net.model.spells:
    batch['character_BTW'] = jax.ShapeDtypeStruct((1, 8, most), jnp.int32)
    batch['out_character_BUW'] = batch['character_BTW']
  return batch | dict(weight_BP=jax.ShapeDtypeStruct((1, 8), jnp.float32))


def shapes(net: Net) -> Any:
  """Returns the variables of a net, as partitioning boxes of shapes."""
  return jax.eval_shape(net.model.init, jax.random.key(0), inputs(net))


def layer_number(net: Net, layer: int) -> int:
  """Returns the number of a layer, from 0 to the number of layers. Raises UserError if there is
  none."""
  if not isinstance(layer, int | np.integer) or not -net.layers - 1 <= layer <= net.layers:
    raise UserError(
      f'the model has {amount(net.layers, "layers")}: expected layer from 0, what enters the '
      f'first, to {net.layers}, or from -1, the last, to {-net.layers - 1}; got {layer}'
    )
  return int(layer if layer >= 0 else net.layers + 1 + layer)


def tells_attention(net: Net) -> bool:
  """Returns whether `attention` can be computed of a net."""
  return isinstance(net.model, AttendingModel) and getattr(net.model, 'sharing', 'none') == 'none'


def attention(net: Net, layer: int, variables: Variables, batch: Batch) -> Array:
  """Returns how each row attends in a layer, counted from 1: float32 [B, N, T, T], from and to."""
  out = net.read(variables, batch, True)
  found: Any = net.model.apply(variables, out, batch, layer - 1, method='attends')
  return found


def vectors(
  net: Net, pool: Pool, layers: Sequence[int], variables: Variables, batch: Batch
) -> Array:
  """Returns the vectors of each row of some layers, pooled, float32 [B, layers, D], or with 'none'
  of its tokens [B, layers, T, D]; layers are as of `layer_number`. Raises UserError: layer 0 of a
  model that does not tell what enters its first layer."""
  out = net.read(variables, batch, min(layers) < net.layers)
  return jnp.stack([_pooled(_output(net, out, layer), pool, batch) for layer in layers], 1)


def _output(net: Net, out: Any, layer: int) -> Array:
  if layer == net.layers:
    return out['last_BTD']
  if layer:
    return out['hidden_LBTD'][layer - 1]
  if 'embedded_BTD' in out:
    return out['embedded_BTD']
  raise UserError(
    f'config.model.name={net.name!r} does not return embedded_BTD, what enters its first layer: '
    f'expected layer 1 to {net.layers}, or the model to return it'
  )


def _pooled(x_BTD: Array, pool: Pool, batch: Batch) -> Array:
  x_BTD = x_BTD.astype(jnp.float32)
  if pool == 'none':
    return x_BTD
  if pool == 'first':
    return gather_positions(x_BTD, batch['first_BG'])[:, 0]
  real_BT = (batch['example_BT'] > 0).astype(jnp.float32)
  return jnp.einsum('BTD,BT->BD', x_BTD, real_BT / jnp.maximum(jnp.sum(real_BT, 1)[:, None], 1))
