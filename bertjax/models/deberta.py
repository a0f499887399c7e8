"""DeBERTa: an encoder whose attention has content and distance apart.

He et al. 2021; microsoft/DeBERTa, DeBERTa/deberta. Layers are BERT's but for attention, whose score
of query i and key j is

  (q_i . k_j + q_i . K(r_d) + k_j . Q(r_d)) / sqrt(3 H)        d the bucket of i - j

where r is one table of buckets for all layers, behind a norm, and K and Q are the layer's own
projections of keys and queries. Nothing else tells where a token is. The paper has j - i in the
last term; the original, and this, i - j in both.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bertjax.field_types import Count
from bertjax.kernels.dropout import Noise, fork
from bertjax.kernels.relative_attention import Mask, Relative, distance_tables
from bertjax.models import bert
from bertjax.models.layers import flops as flops_lib
from bertjax.models.layers import remat as remat_lib
from bertjax.models.layers.attention import Attention
from bertjax.models.layers.basic import Dropout, Norm, options_of, small_table
from bertjax.models.layers.block import Block, Context
from bertjax.models.layers.encoder import initial, scanned, stacked, unrolled
from bertjax.types import Array, Batch, Factory

PASSES = 2  # of the last layer in the enhanced mask decoder (masked_language_model.py:47)


class Layer(Block):
  """A block with `Context.table_RD`, a row for each distance bucket; with `Context.other_BSD` that
  is what its queries see."""

  furthest: int = 512  # distances from here on share the last bucket

  def content(self, x_BTD: Array, context: Context) -> Array:
    """Returns what is seen."""
    return x_BTD if context.other_BSD is None else context.other_BSD

  def attend(
    self, attention: Attention, x_BTD: Array, seen_BSD: Array, context: Context, noise, layer: Array
  ) -> Array:
    """Returns the output of attention, before its dropout and the residual."""
    table_KD, length = context.table_RD, x_BTD.shape[1]
    assert table_KD is not None
    dropped_KD = Dropout(self.dropout, shared=True, name='position_dropout')(table_KD, noise, layer)
    bucket_R = buckets(length, len(table_KD) // 2, self.furthest)
    r_RNH, p_RNH = (project(dropped_KD)[bucket_R] for project in (attention.key, attention.query))
    relative = Relative(r_RNH, p_RNH=p_RNH, far=length - 1)
    return attention(x_BTD, seen_BSD, context.mask, relative, None, noise, layer)


def buckets(length: int, count: int, furthest: int) -> np.ndarray:
  """Returns the bucket of each distance in rows of a length, the furthest first: int [R]."""
  distance_R = distance_tables.distances(length, length)
  return distance_tables.deberta_buckets(distance_R, count, furthest)


class Net(nn.Module):
  """A stack of `Layer` and its table of distances.

  With `decoder` it ends in the enhanced mask decoder: the last layer runs PASSES times, on the
  states before it with absolute positions added, and sees these states without.
  """

  layers: int  # L
  remat: str  # a `Remat`
  layer: dict[str, Any]  # the fields of `Layer`
  buckets: int  # of each side
  positions: int = 0  # of the decoder's absolute positions; 0: there is no decoder

  @nn.compact
  def __call__(
    self, x_BTD: Array, mask: Mask, noise: Noise | None, hidden: bool = False,
    position_BT: Array | None = None,
  ) -> tuple[Array, Array | None]:  # fmt: skip
    """Returns the last layer's output, or the decoder's, which reads the positions; and with
    `hidden` every layer's, or None."""
    init, width = self.layer['initializer'], x_BTD.shape[-1]
    table_KD = small_table(self, 'position', 'position', (2 * self.buckets, width), init)
    norm = Norm(self.layer['norm_eps'], self.layer['dtype'], name='position_norm')
    context = Context(mask, table_RD=norm(table_KD))
    layer = dict(self.layer, hidden=hidden)
    if not self.positions:
      stack = scanned(self, Layer, noise)(**layer, name='layers')
      x_BTD, (_, hidden_LBTD) = stack(x_BTD, context, noise, None, jnp.arange(self.layers))
      return x_BTD, hidden_LBTD
    return self._decoded(Layer(**layer, parent=None), x_BTD, position_BT, context, noise), None

  def _decoded(
    self, layer: Layer, x_BTD: Array, position_BT: Any, context: Context, noise: Noise | None
  ) -> Array:
    params = self.param('layers', stacked, initial(layer, x_BTD, context), self.layers)
    run = lambda p, x, context, noise, number: layer.apply(
      {'params': p}, x, context, noise, None, number
    )[0]
    apart = unrolled(self.remat, noise)
    apply = remat_lib.function(run, self.remat, apart)
    before, last = (jax.tree.map(lambda leaf, at=at: leaf[at], params) for at in (np.s_[:-1], -1))

    def visit(x_BTD: Array, inputs) -> tuple[Array, None]:
      mine, number = inputs
      return apply(mine, x_BTD, context, noise, number), None

    numbers = jnp.arange(self.layers - 1)
    x_BTD, _ = jax.lax.scan(visit, x_BTD, (before, numbers), unroll=apart)
    shape = self.positions, x_BTD.shape[-1]
    place = small_table(self, 'absolute', 'position', shape, self.layer['initializer'])
    query_BTD = x_BTD + place[position_BT].astype(x_BTD.dtype)
    seen = context._replace(other_BSD=x_BTD)
    for number in range(PASSES):
      again = noise if number == 0 else fork(noise, 'decoder')
      query_BTD = apply(last, query_BTD, seen, again, jnp.int32(self.layers - 1))
    return query_BTD


class Base(bert.Base, kw_only=True):
  """The fields of nets whose tokens have distances alone.

  Attributes:
    buckets: of the distances on either side of a token; half of them are of one distance each.
    positions: columns of the longest row; further distances share a bucket.
  """

  buckets: Count = 256

  @nn.nowrap
  def embeddings_fields(self) -> dict[str, Any]:
    """Returns the fields of the model's Embeddings, which know no positions."""
    return super().embeddings_fields() | dict(positions=0)

  @nn.nowrap
  def net_fields(self) -> dict[str, Any]:
    """Returns the fields of a `Net` without a decoder."""
    own = dict(scale=score_scale(self.width // self.heads), furthest=self.positions)
    layer = self.encoder_fields()['layer'] | own
    return dict(layers=self.layers, remat=self.remat, layer=layer, buckets=self.buckets)

  @nn.nowrap
  def net_flops(
    self, batch: Batch, table_width: int, *, layers: int, width: int, ffn: int
  ) -> float:
    """FLOPs of layers: BERT's, two products by distance, and the table's two projections."""
    count = super().net_flops(batch, table_width, layers=layers, width=width, ffn=ffn)
    pairs = flops_lib.attended_pairs(batch['example_BT'])
    table = flops_lib.head_flops(2 * self.buckets, 2 * width * width)
    return count + layers * (2 * 6.0 * width * pairs + table)


class Deberta(Base, bert.Bert):
  """One net, with BERT's heads."""

  def net(self, batch: Batch) -> tuple[Net, Mask]:
    """Returns the layers and the keys that they see, see `Bert.net`."""
    return Net(**self.net_fields(), name='encoder'), self.mask(batch)

  def relative(self, layer: int, length: int) -> Relative:
    """Returns the terms by distance of a layer."""
    params = self.variables['params']['encoder']
    norm = Norm(self.norm_eps, jnp.dtype(self.dtype), parent=None)
    table_KD = norm.apply({'params': params['position_norm']}, params['position'])
    bucket_R = buckets(length, self.buckets, self.positions)
    leaves = jax.tree.map(lambda leaf: leaf[layer], params['layers']['attention'])
    r_RNH, p_RNH = (
      (jnp.einsum('RD,DNH->RNH', table_KD, leaves[name]['kernel']) + leaves[name]['bias'][None])
      for name in ('key', 'query')
    )
    scale = score_scale(self.width // self.heads)
    return Relative(r_RNH[bucket_R], p_RNH=p_RNH[bucket_R], far=length - 1, scale=scale)


def score_scale(head_size: int) -> float:
  """Returns what the sum of the three products is multiplied with."""
  return (3 * head_size) ** -0.5


MODEL = Factory(
  options_of(Deberta), lambda config: Deberta(**bert.fields(Deberta, config, sharing='none'))
)
