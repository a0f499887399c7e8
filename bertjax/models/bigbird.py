"""BigBird: a BERT for long rows, whose tokens see blocks of keys.

Zaheer et al. 2020 (arXiv 2007.14062); google-research/bigbird, core/attention.py. A row is cut into
blocks of `block` tokens. The first and the last block see, and are seen by, all; each other block
sees itself, the one before it, the one behind it, and `random_blocks` others, which each head draws
for itself, once: training and evaluation see the same. Rows of so few blocks that hardly any would
be left out see all. Each block of queries with the blocks of keys that it sees is a row of its own
for the attention operation, so cost grows linearly with the row.

The original draws its blocks by NumPy's global generator, seeded by the layer's number, and for
rows of 1,024 tokens or more from the first 1,024 alone; here from the whole row, by
`config.model.seed`.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bertjax.errors import UserError
from bertjax.field_types import Count, Natural
from bertjax.kernels.dropout import Noise
from bertjax.kernels.relative_attention import Mask, relative_attention
from bertjax.models import bert
from bertjax.models.layers import flops as flops_lib
from bertjax.models.layers.attend import example_mask
from bertjax.models.layers.attention import Attention
from bertjax.models.layers.basic import options_of
from bertjax.models.layers.block import Block
from bertjax.models.layers.embeddings import Embeddings
from bertjax.models.layers.encoder import Stack
from bertjax.types import Batch, Factory

Array = jax.Array

AROUND = 5  # blocks that each sees besides random ones: the ends, its neighbours and itself


class Seen(NamedTuple):
  """What layers get besides the hidden states: the keys that tokens see within the blocks, and the
  blocks, int32 [layers, N, blocks but the ends, seen], -1 where there are fewer; None: all."""

  mask: Mask
  plan: Array | None = None


class Layer(Block):
  """A block of the model whose attention is by blocks of keys, if there is a plan."""

  block: int = 64

  def attend(
    self, attention: Attention, x_BTD: Array, seen_BSD: Array, context: Seen, noise, layer: Array
  ) -> Array:
    """Returns the output of attention, before its dropout and the residual; by blocks probabilities
    have no dropout, as in the original."""
    projections = attention.query, attention.key, attention.value
    q_BTNH, k_BTNH, v_BTNH = (project(x_BTD) for project in projections)
    if context.plan is None:
      y_BTNH = attention.attend(q_BTNH, k_BTNH, v_BTNH, context.mask, None, noise, layer)
      return attention.out(y_BTNH)
    length, lacking = x_BTD.shape[1], -x_BTD.shape[1] % self.block
    longer = lambda x: jnp.pad(x, ((0, 0), (0, lacking), (0, 0), (0, 0)))
    q_BTNH, k_BTNH, v_BTNH = map(longer, (q_BTNH, k_BTNH, v_BTNH))
    example_BT = jnp.pad(context.mask.example_q_BT, ((0, 0), (0, lacking)))
    between_BTNH = _between(q_BTNH, k_BTNH, v_BTNH, example_BT, context.plan[layer], self.block)
    ends = lambda x: jnp.concatenate([x[:, : self.block], x[:, -self.block :]], 1)
    mask = Mask(ends(example_BT), example_BT)
    ends_BTNH = relative_attention(ends(q_BTNH), k_BTNH, v_BTNH, mask)
    first, last = jnp.split(ends_BTNH, 2, 1)
    y_BTNH = jnp.concatenate([first, between_BTNH, last], 1)
    return attention.out(y_BTNH[:, :length])


def _between(q_BTNH, k_BTNH, v_BTNH, example_BT: Array, plan_NIK: Array, block: int) -> Array:
  """Returns attention of all blocks but the ends, [B, T of these, N, H]: each block of queries of a
  head is a row with the keys of its own blocks."""
  rows, _, heads, size = q_BTNH.shape
  inner = plan_NIK.shape[1]
  cut = lambda x: x.reshape(rows, -1, block, *x.shape[2:])
  seen_NIK = jnp.maximum(plan_NIK, 0)
  each = jax.vmap(lambda x, seen_IK: x[:, seen_IK], (3, 0), 1)  # head for head
  flat = lambda x: x.reshape(rows * heads * inner, -1, 1, size)
  q = flat(jnp.moveaxis(cut(q_BTNH)[:, 1:-1], 3, 1))
  k, v = (flat(each(cut(x), seen_NIK)) for x in (k_BTNH, v_BTNH))
  example = cut(example_BT)
  theirs = jnp.where((plan_NIK >= 0)[None, ..., None], example[:, seen_NIK], 0)
  mine = jnp.broadcast_to(example[:, None, 1:-1], (rows, heads, inner, block))
  mask = Mask(mine.reshape(len(q), -1), theirs.reshape(len(k), -1))
  y = relative_attention(q, k, v, mask, impl='xla')  # kernels divide the rows of a batch, not these
  return jnp.moveaxis(y.reshape(rows, heads, inner * block, size), 1, 2)


class BigBird(bert.Bert, kw_only=True):
  """The model, with BERT's heads.

  Attributes:
    block: tokens of a block.
    random_blocks: blocks that each sees besides its neighbours and the ends.
    seed: by which they are drawn.
  """

  block: Count = 64
  random_blocks: Natural = 3
  seed: Natural = 0

  def encoded(
    self, batch: Batch, noise: Noise | None, hidden: bool
  ) -> tuple[Array, Array, Array, Array | None]:
    """Runs embeddings and layers, see `Bert.encoded`."""
    x_BTD, word_VE = Embeddings(**self.embeddings_fields(), name='embeddings')(batch, noise)
    plan = self.plan(x_BTD.shape[1])
    seen = Seen(example_mask(batch, 'example'), None if plan is None else jnp.asarray(plan))
    layer = self.encoder_fields(hidden)['layer'] | dict(block=self.block)
    net = Stack(Layer, self.layers, self.remat, layer, name='encoder')
    return x_BTD, word_VE, *net(x_BTD, seen, noise)

  @nn.nowrap
  def plan(self, length: int) -> np.ndarray | None:
    """Returns the blocks that each sees in rows of a length, see `Seen`; None: each sees all."""
    blocks, few = -(-length // self.block), AROUND + 2 * self.random_blocks
    if length <= few * self.block:
      return None
    return drawn(self.seed, self.layers, self.heads, blocks, self.random_blocks)

  def attends(self, out: Mapping[str, Any], batch: Batch, layer: int) -> Array:
    """Computes the weights of a layer, see `AttendingModel`. UserError: they are by blocks."""
    length = batch['example_BT'].shape[1]
    if self.plan(length) is not None:
      raise UserError(f'attention by blocks has no weights between all of {length} tokens')
    return super().attends(out, batch, layer)

  @nn.nowrap
  def net_flops(
    self, batch: Batch, table_width: int, *, layers: int, width: int, ffn: int
  ) -> float:
    """FLOPs of layers, of the pairs of real tokens that blocks see; rows hold one example each."""
    count = super().net_flops(batch, table_width, layers=layers, width=width, ffn=ffn)
    example_BT = np.asarray(batch['example_BT'])
    plan = self.plan(example_BT.shape[1])
    if plan is None:
      return count
    lacking = -example_BT.shape[1] % self.block
    real_BT = np.pad(example_BT > 0, ((0, 0), (0, lacking)))
    real_Bb = real_BT.reshape(len(real_BT), -1, self.block).sum(-1)
    whole_B, ends_B = real_Bb.sum(1), real_Bb[:, 0] + real_Bb[:, -1]
    seen = np.where(plan >= 0, real_Bb[:, np.maximum(plan, 0)], 0).sum(-1)  # [B, L, N, blocks]
    pairs = (seen * real_Bb[:, None, None, 1:-1]).sum() / self.heads + layers * ends_B @ whole_B
    hidden = layers * flops_lib.attended_pairs(example_BT) - pairs
    return count - 12.0 * width * float(hidden)


@functools.cache
def drawn(seed: int, layers: int, heads: int, blocks: int, random_blocks: int) -> np.ndarray:
  """Draws the blocks that each but the ends sees: int32 [layers, heads, blocks - 2, AROUND +
  random_blocks], ascending behind -1 where two of them are the same."""
  inner, number = np.arange(1, blocks - 1), np.arange(blocks)
  fixed = np.abs(inner[:, None] - number) <= 1
  fixed[:, [0, -1]] = True
  rng = np.random.default_rng(seed)
  draw = np.where(fixed, 2.0, rng.random((layers, heads, *fixed.shape)))
  rank = draw.argsort(-1).argsort(-1)
  seen = fixed | (rank < random_blocks)
  found = np.sort(np.where(seen, number, -1), -1)
  return found[..., -(AROUND + random_blocks) :].astype(np.int32)


def make(config) -> BigBird:
  """Builds the model from `config.model`; errors as `bert.fields`, and what has no blocks: layers
  that share, or another `attend`."""
  return BigBird(**bert.fields(BigBird, config, sharing='none', attend='example'))


MODEL = Factory(options_of(BigBird), make)
