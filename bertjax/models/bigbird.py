"""BigBird: a BERT for long rows, whose tokens see blocks of keys.

Zaheer et al. 2020 (arXiv 2007.14062); google-research/bigbird, core/attention.py. A row is cut into
blocks of `block` tokens. The first block, and the last one that holds text, see, and are seen by,
all; each other block sees itself, the one before it, the one behind it, and `random_blocks` others.
A number of each pair of blocks, of its own for each layer and head, says which are preferred among
those that hold text: training and evaluation see the same, whatever padding a row has. Rows of so
few blocks that none would be left out see all. Each block of queries with the blocks of keys that
it sees is a row of its own for the attention operation, so cost grows linearly with the row.

The original draws its blocks by NumPy's global generator, seeded by the layer's number, and for
rows of 1,024 tokens or more from the first 1,024 alone; here from the whole text, by
`config.model.seed`. Its last block is that of the padded row.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bertjax import counter_rng
from bertjax.errors import UserError
from bertjax.field_types import Count, Natural
from bertjax.kernels.relative_attention import Mask, relative_attention
from bertjax.kernels.relative_attention.sharded import sharded
from bertjax.models import bert
from bertjax.models.layers import flops as flops_lib
from bertjax.models.layers.attention import Attention
from bertjax.models.layers.basic import options_of
from bertjax.models.layers.block import Block
from bertjax.models.layers.encoder import Encoder
from bertjax.types import Array, Batch, Factory

ENDS = 2  # blocks that see all
AROUND = 3  # blocks that each other one sees beside it, itself among them


class Seen(NamedTuple):
  """Tells layers, besides the hidden states, the keys that tokens see within the blocks, and how
  each block prefers the others, float32 [layers, N, blocks, blocks]; None: each sees all."""

  mask: Mask
  prefers: Array | None = None


class Layer(Block):
  """A block of the model whose attention is by blocks of keys, if there is a plan."""

  block: int = 64
  random_blocks: int = 3

  def attend(
    self, attention: Attention, x_BTD: Array, seen_BSD: Array, context: Seen, noise, layer: Array
  ) -> Array:
    """Returns the output of attention, before its dropout and the residual; by blocks probabilities
    have no dropout, as in the original."""
    projections = attention.query, attention.key, attention.value
    q_BTNH, k_BTNH, v_BTNH = (project(x_BTD) for project in projections)
    if context.prefers is None:
      y_BTNH = attention.attend(q_BTNH, k_BTNH, v_BTNH, context.mask, None, noise, layer)
      return attention.out(y_BTNH)
    length, lacking = x_BTD.shape[1], -x_BTD.shape[1] % self.block
    longer = lambda x: jnp.pad(x, ((0, 0), (0, lacking), *[(0, 0)] * (x.ndim - 2)))
    q_BTNH, k_BTNH, v_BTNH = map(longer, (q_BTNH, k_BTNH, v_BTNH))
    example_BT, prefers_NIJ = longer(context.mask.example_q_BT), context.prefers[layer]
    attend = functools.partial(by_blocks, block=self.block, random_blocks=self.random_blocks)
    # On each device's share: XLA's partitioner aborts on gathers of divided rows and heads.
    y_BTNH = sharded(attend)(Blocks(q_BTNH, k_BTNH, v_BTNH, example_BT, prefers_NIJ))
    return attention.out(y_BTNH[:, :length])


class Blocks(NamedTuple):
  """Operands of attention by blocks, whose rows are whole blocks."""

  q_BTNH: Array
  k_BTNH: Array
  v_BTNH: Array
  example_BT: Array
  prefers_NIJ: Array  # see `Seen`
  dropout: None = None


def by_blocks(x: Blocks, block: int, random_blocks: int) -> Array:
  """Returns the output of attention, like the queries."""
  last_B = last_block(x.example_BT, block)
  plan_BNIK = planned(x.prefers_NIJ, last_B, random_blocks)
  # Gathered keys and scores are made again in the backward pass, not kept.
  between = jax.checkpoint(functools.partial(_between, block=block))
  y_BTNH = between(x.q_BTNH, x.k_BTNH, x.v_BTNH, x.example_BT, plan_BNIK)
  row_B1, place_E = jnp.arange(len(last_B))[:, None], jnp.arange(block)[None]
  at = jnp.concatenate([0 * last_B[:, None] + place_E, last_B[:, None] * block + place_E], 1)
  mask = Mask(x.example_BT[row_B1, at], x.example_BT)
  return y_BTNH.at[row_B1, at].set(
    relative_attention(x.q_BTNH[row_B1, at], x.k_BTNH, x.v_BTNH, mask)
  )


def _between(q_BTNH, k_BTNH, v_BTNH, example_BT: Array, plan_BNIK: Array, block: int) -> Array:
  """Returns attention by a plan: each block of queries of a head is a row with the keys of its own
  blocks."""
  rows, _, heads, size = q_BTNH.shape
  cut = lambda x: x.reshape(rows, -1, block, *x.shape[2:])
  seen_BNIK, blocks = jnp.maximum(plan_BNIK, 0), plan_BNIK.shape[2]
  # Blocks of all heads side by side.
  at_BNIK = seen_BNIK + blocks * jnp.arange(heads)[None, :, None, None]
  by_head = lambda x: jnp.moveaxis(cut(x), 3, 1).reshape(rows, heads * blocks, block, size)
  gathered = lambda x: jax.vmap(lambda x, at: x[at])(by_head(x), at_BNIK.reshape(rows, -1))
  q = by_head(q_BTNH).reshape(-1, block, 1, size)
  k, v = (gathered(x).reshape(len(q), -1, 1, size) for x in (k_BTNH, v_BTNH))
  example = cut(example_BT)
  theirs = jax.vmap(lambda x, seen_NIK: x[seen_NIK])(example, seen_BNIK)
  theirs = jnp.where((plan_BNIK >= 0)[..., None], theirs, 0)
  mine = jnp.broadcast_to(example[:, None], (rows, heads, *example.shape[1:]))
  mask = Mask(mine.reshape(len(q), -1), theirs.reshape(len(k), -1))
  y = relative_attention(q, k, v, mask, impl='xla')  # kernels divide the rows of a batch, not these
  return jnp.moveaxis(y.reshape(rows, heads, -1, size), 1, 2)


def last_block(example_BT: Array | np.ndarray, block: int) -> Array:
  """Returns the number of the last block of each row that holds text, int32 [B]."""
  real_Bb = jnp.any(jnp.reshape(example_BT, (len(example_BT), -1, block)) > 0, -1)
  return jnp.max(jnp.where(real_Bb, jnp.arange(real_Bb.shape[1])[None], 0), 1).astype(jnp.int32)


def planned(prefers_NIJ: Array, last_B: Array, random_blocks: int) -> Array:
  """Returns the blocks that each sees, int32 [B, N, blocks, AROUND + ENDS + random_blocks], -1
  where there are fewer. The first and the last block that holds text see all, beside this."""
  blocks = prefers_NIJ.shape[-1]
  i, last_B1, number = jnp.arange(blocks)[None], last_B[:, None], jnp.arange(blocks)
  zero = jnp.zeros_like(i + last_B1)
  around = [zero + i + step for step in (-1, 0, 1)]
  around = [jnp.where((x > 0) & (x < last_B1), x, -1) for x in around]
  fixed_BIK = jnp.stack([zero, *around, jnp.where(last_B1 > 0, zero + last_B1, -1)], -1)
  far_ij = jnp.abs(number[:, None] - number[None]) > 1
  inner_Bj = (number[None] > 0) & (number[None] < last_B1)
  free = far_ij[None, None] & inner_Bj[:, None, None]
  best, chosen = jax.lax.top_k(jnp.where(free, prefers_NIJ[None], -1.0), random_blocks)
  chosen = jnp.where(best >= 0, chosen, -1)
  fixed = jnp.broadcast_to(fixed_BIK[:, None], (*chosen.shape[:3], fixed_BIK.shape[-1]))
  return jnp.concatenate([fixed, chosen], -1).astype(jnp.int32)


class BigBird(bert.Bert, kw_only=True):
  """The model, with BERT's heads.

  Attributes:
    block: tokens of a block.
    random_blocks: blocks that each sees besides its neighbours and the ends.
    seed: of which blocks are preferred.
  """

  block: Count = 64
  random_blocks: Natural = 3
  seed: Natural = 0

  @property
  def alike(self) -> int:
    """Columns of the longest row whose tokens see all: transformers leaves out other blocks."""
    return self.block * (ENDS + AROUND + self.random_blocks - 1)

  def net(self, batch: Batch) -> tuple[Encoder, Seen]:
    """Returns the layers and what they see, see `Bert.net`."""
    layer = self.encoder_fields()['layer']
    layer |= dict(block=self.block, random_blocks=self.random_blocks)
    seen = Seen(self.mask(batch), self.prefers(batch['token_BT'].shape[1]))
    return Encoder(self.layers, self.remat, layer, block=Layer, name='encoder'), seen

  @nn.nowrap
  def prefers(self, length: int) -> Array | None:
    """Returns how blocks prefer each other in rows of a length, see `Seen`; None: each sees all."""
    blocks = -(-length // self.block)
    if blocks < ENDS + AROUND + self.random_blocks:
      return None
    key = counter_rng.root(self.seed, 'bigbird')
    for number in (self.layers, self.heads, blocks, blocks):
      key = counter_rng.fold(key[..., None], np.arange(number))
    return jnp.asarray(counter_rng.uniform(key)[0], jnp.float32)

  def attends(self, out: Mapping[str, Any], batch: Batch, layer: int) -> Array:
    """Computes the weights of a layer, see `AttendingModel`. UserError: they are by blocks."""
    length = batch['example_BT'].shape[1]
    if self.prefers(length) is not None:
      raise UserError(
        f'attention by blocks has no weights between all tokens of a row of {length} columns: '
        f'expected shorter texts, whose rows have {self.alike} at most, padding included'
      )
    return super().attends(out, batch, layer)

  @nn.nowrap
  def net_flops(
    self, batch: Batch, table_width: int, *, layers: int, width: int, ffn: int
  ) -> float:
    """FLOPs of layers, of the pairs of real tokens that blocks see; rows hold one example each."""
    count = super().net_flops(batch, table_width, layers=layers, width=width, ffn=ffn)
    example_BT = np.asarray(batch['example_BT'])
    prefers = self.prefers(example_BT.shape[1])
    if prefers is None:
      return count
    padded_BT = np.pad(example_BT, ((0, 0), (0, -example_BT.shape[1] % self.block)))
    real_Bb = (padded_BT > 0).reshape(len(padded_BT), -1, self.block).sum(-1)
    last_B, row_B, pairs = last_block(padded_BT, self.block), np.arange(len(real_Bb)), 0.0
    for prefers_NIJ in prefers:
      plan = np.asarray(planned(prefers_NIJ, last_B, self.random_blocks))
      theirs = real_Bb[row_B[:, None, None, None], np.maximum(plan, 0)]
      seen_BNb = np.where(plan >= 0, theirs, 0).sum(-1)
      seen_BNb[:, :, 0] = seen_BNb[row_B, :, np.asarray(last_B)] = real_Bb.sum(1)[:, None]
      pairs += float((seen_BNb * real_Bb[:, None]).sum()) / self.heads
    hidden = layers * flops_lib.attended_pairs(example_BT) - pairs
    return count - 12.0 * width * float(hidden)


MODEL = Factory(
  options_of(BigBird),
  # Layers that share, or another `attend`, have no blocks.
  lambda config: BigBird(**bert.fields(BigBird, config, sharing='none', attend='example')),
)
