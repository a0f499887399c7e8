"""The post-LN transformer encoder, scanned over its layers."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bertjax.errors import UserError, choose
from bertjax.kernels.dropout import Noise
from bertjax.kernels.relative_attention import Mask
from bertjax.models.layers.attention import SelfAttention
from bertjax.models.layers.basic import ACTIVATIONS, Dense, Dropout, Init, Norm

Array = jax.Array

# What of a layer may be shared without the rest; a norm goes with what comes before it.
PARTS = dict(attention=('attention', 'attention_norm'), ffn=('ffn_up', 'ffn_down', 'ffn_norm'))
Sharing = Literal['none', 'all', 'attention', 'ffn']


class Layer(nn.Module):
  """Attention and feed-forward, each followed by dropout, residual and norm (Vaswani et al.
  2017)."""

  heads: int
  ffn: int
  activation: str
  norm_eps: float
  dropout: float
  attention_dropout: float
  initializer: Init
  hidden: bool  # also return the layer's output, for `predict`
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(self, x_BTD: Array, mask: Mask, noise: Noise | None, layer: Array):
    width = x_BTD.shape[-1]
    attention = SelfAttention(
      self.heads, self.initializer, self.attention_dropout, self.dtype, name='attention'
    )
    y_BTD = attention(x_BTD, mask, noise, layer)
    y_BTD = Dropout(self.dropout, name='attention_dropout')(y_BTD, noise, layer)
    x_BTD = Norm(self.norm_eps, self.dtype, name='attention_norm')(x_BTD + y_BTD)
    up = Dense((self.ffn,), ('embed', 'ffn'), self.initializer, dtype=self.dtype, name='ffn_up')
    down = Dense((width,), ('ffn', 'embed'), self.initializer, dtype=self.dtype, name='ffn_down')
    y_BTD = down(ACTIVATIONS[self.activation](up(x_BTD)))
    y_BTD = Dropout(self.dropout, name='ffn_dropout')(y_BTD, noise, layer)
    x_BTD = Norm(self.norm_eps, self.dtype, name='ffn_norm')(x_BTD + y_BTD)
    x_BTD = nn.with_logical_constraint(x_BTD, ('batch', 'length', 'embed_act'))
    return x_BTD, (x_BTD if self.hidden else None)


class Encoder(nn.Module):
  """A stack of layers as one scan.

  Attributes:
    layers: L.
    remat: recompute the layers in the backward pass.
    layer: the fields of Layer.
    sharing: which parameters layers hold in common, a `Sharing` (Lan et al. 2020). 'none': every
      leaf is under 'layers' and has a leading axis of that name. Parts that all layers share are
      under 'shared' instead, without that axis.
    groups, inner_groups: of 'all'. Layer l visits group l * groups // layers, and each visit runs
      the group's inner_groups blocks one after the other (google-research/albert, modeling.py). Of
      several blocks in all, each leaf is one stack under 'layers', group by group.
  """

  layers: int
  remat: bool
  layer: dict[str, Any]
  sharing: str = 'none'
  groups: int = 1
  inner_groups: int = 1

  @nn.compact
  def __call__(self, x_BTD: Array, mask: Mask, noise: Noise | None):
    """Returns the last block's output, and every block's where the layer is `hidden`."""
    if self.sharing != 'none':
      return self._shared(x_BTD, mask, noise)
    body = nn.remat(Layer, prevent_cse=False) if self.remat else Layer
    scanned = nn.scan(
      body,
      variable_axes={'params': 0},
      split_rngs={'params': True},
      in_axes=(nn.broadcast, nn.broadcast, 0),  # pyright: ignore[reportArgumentType]
      length=self.layers,
      metadata_params={nn.PARTITION_NAME: 'layers'},
    )
    stack = scanned(**self.layer, name='layers')
    return stack(x_BTD, mask, noise, jnp.arange(self.layers))

  def _shared(self, x_BTD: Array, mask: Mask, noise: Noise | None):
    """A scan over the visits of each group. What they share is a constant of the scan, so its
    transpose adds up the gradients of the visits, and no layer has a copy."""
    layer = Layer(**self.layer, parent=None)
    init = lambda key: layer.init(key, x_BTD, mask, None, jnp.int32(0))['params']
    blocks, each = self._parameters(init)
    apply = lambda params, *args: layer.apply({'params': params}, *args)
    apply = jax.checkpoint(apply, prevent_cse=False) if self.remat else apply
    group_L, outputs = layer_groups(self.layers, self.groups), []
    for group in range(self.groups):
      inner = blocks[group * self.inner_groups :][: self.inner_groups]
      first = jnp.asarray(np.flatnonzero(group_L == group) * self.inner_groups)

      def visit(x_BTD: Array, inputs, inner=inner):
        hidden, (number, mine) = [], inputs
        for place, params in enumerate(inner):
          x_BTD, h_BTD = apply({**params, **mine}, x_BTD, mask, noise, number + place)
          hidden.append(h_BTD)
        return x_BTD, hidden

      x_BTD, hidden = jax.lax.scan(visit, x_BTD, (first, each))
      if self.layer['hidden']:
        outputs.append(jnp.stack(hidden, 1).reshape(-1, *x_BTD.shape))
    return x_BTD, (jnp.concatenate(outputs) if outputs else None)

  def _parameters(self, init: Callable[[Array], Any]) -> tuple[list[Any], Any]:
    """Declares the parameters.

    Args:
      init: of one layer.

    Returns:
      What each block shares between its visits, group by group, and the stack of the parts that
      every layer has for itself.
    """

    def some(key: Array, names: Sequence[str]):
      params = init(key)
      return {name: params[name] for name in names}

    def stacked(key: Array, names: Sequence[str], copies: int):
      params = jax.vmap(lambda k: some(k, names))(jax.random.split(key, copies))
      return nn.meta.add_axis(params, 0, {nn.PARTITION_NAME: 'layers'})

    every = [name for part in PARTS.values() for name in part]
    if self.sharing != 'all':
      common = PARTS[self.sharing]
      own = [name for name in every if name not in common]
      shared = self.param('shared', some, common)
      return [shared], self.param('layers', stacked, own, self.layers)
    copies = self.groups * self.inner_groups
    if copies == 1:
      return [self.param('shared', some, every)], {}
    stack = self.param('layers', stacked, every, copies)
    leaves, treedef = jax.tree.flatten(stack)
    return [treedef.unflatten(p) for p in zip(*map(jnp.unstack, leaves), strict=True)], {}


def layer_groups(layers: int, groups: int) -> np.ndarray:
  """The group that each layer visits, int64 [layers].

  The quotient is exact. The original's int(l / layers * groups) and transformers'
  int(l / (layers / groups)) are rounded otherwise in some odd cases, first at 22 layers in 22
  groups and at 18 in 14.
  """
  return np.arange(layers) * groups // layers


def check_sharing(sharing: str, layers: int, groups: int, inner_groups: int) -> None:
  """Checks these fields of `config.model`.

  Raises:
    UserError: an unknown sharing, groups where layers share no whole blocks, or more groups than
      layers, some of which no layer would visit.
  """
  choose(sharing, get_args(Sharing), 'config.model.sharing')
  if sharing != 'all' and (groups, inner_groups) != (1, 1):
    raise UserError(
      "config.model.groups and inner_groups are read with config.model.sharing='all' only, got "
      f'sharing={sharing!r}, groups={groups}, inner_groups={inner_groups}: set both to 1'
    )
  if not 1 <= groups <= layers or inner_groups < 1:
    raise UserError(
      f'config.model.groups must be from 1 to layers={layers} and inner_groups at least 1, got '
      f'{groups} and {inner_groups}'
    )
