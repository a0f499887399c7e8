"""The attention that published systems run, as data: what is compiled, measured and tested.

Rows are those of one chip where the source says how many chips there were. The sources:

  bert      Devlin et al. 2019, 256 rows on 16 chips (base) and 64 (large); no dropout in evaluation
  albert    Lan et al. 2020, 4096 rows on up to 512 chips; version 2 has no dropout
  xlnet     Yang et al. 2019 and the pretraining command of github.com/zihangdai/xlnet: reuse 256,
            memory 384, half of the rows in reverse; 8192 rows on 512 chips (large)
  txl       Dai et al. 2019 and github.com/kimiyoung/transformer-xl: pytorch/run_*_base.sh
            (one of 4 GPUs) and tf/scripts/*_large_tpu.sh (16 cores); same_length in evaluation
  deberta   He et al. 2021: 256 buckets to each side, no further positions
  t5        Raffel et al. 2020, base: one bias table, no scale
  alibi     Press et al. 2022, the WikiText-103 model (16 layers of 1024, 8 heads)
  longformer  Beltagy et al. 2020, base: 256 to each side
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bertjax.kernels import dropout as dropout_lib
from bertjax.kernels.relative_attention.operands import Dropout, Mask, Operands, Relative, Segment
from bertjax.types import Array


class Shape(NamedTuple):
  """One call of the operation."""

  # rows, queries, memory, heads, size: B, T, M, N, H; S = M + T
  rows: int
  queries: int
  memory: int
  heads: int
  size: int
  # '', 'causal', or 'permuted': XLNet's halves, of which the first does not see the second
  order: str = ''
  # window, sinks, see_self, scale: as in `Mask` and `Relative`
  window: int | None = None
  sinks: int = 0
  see_self: bool = False
  # '' none, 'both' for all distances, 'past' ends at 0, 'mirror' for rows in reverse
  table: str = ''
  bias: bool = False  # the table is a bias, not projected positions
  by_keys: bool = False  # there is a table for keys besides, and no bias of the queries
  segment: bool = False  # with XLNet's segment term
  scale: float | None = None
  rate: float = 0.0  # dropout of the probabilities in training

  @property
  def keys(self) -> int:
    return self.memory + self.queries


_CONTENT = Shape(16, 512, 384, 16, 64, 'permuted', see_self=True, table='mirror', segment=True,
                 rate=0.1)  # fmt: skip

SHAPES = {
  'bert_base': Shape(16, 512, 0, 12, 64, rate=0.1),
  'bert_base_eval': Shape(16, 512, 0, 12, 64),
  'bert_large': Shape(4, 512, 0, 16, 64, rate=0.1),
  'albert_xxlarge': Shape(8, 512, 0, 64, 64),
  'xlnet_base_content': _CONTENT._replace(heads=12),
  'xlnet_base_query': _CONTENT._replace(heads=12, see_self=False),
  'xlnet_large_content': _CONTENT,
  'xlnet_large_query': _CONTENT._replace(see_self=False),
  'txl_wt103_base': Shape(15, 150, 150, 10, 41, 'causal', table='past'),
  'txl_wt103_base_eval': Shape(10, 64, 640, 10, 41, 'causal', window=640, table='past'),
  'txl_wt103_large': Shape(8, 384, 384, 16, 64, 'causal', table='past', rate=0.2),
  'txl_wt103_large_eval': Shape(8, 128, 1600, 16, 64, 'causal', window=1600, table='past'),
  'txl_enwik8_base': Shape(6, 512, 512, 8, 64, 'causal', table='past'),
  'txl_enwik8_base_eval': Shape(10, 80, 2100, 8, 64, 'causal', window=2100, table='past'),
  'txl_enwik8_large': Shape(4, 768, 768, 8, 128, 'causal', table='past', rate=0.15),
  'txl_enwik8_large_eval': Shape(1, 128, 3800, 8, 128, 'causal', window=3800, table='past'),
  'deberta_base': Shape(16, 512, 0, 12, 64, table='both', by_keys=True, scale=192**-0.5, rate=0.1),
  't5_base': Shape(8, 512, 0, 12, 64, table='both', bias=True, scale=1.0, rate=0.1),
  'alibi_wt103': Shape(4, 3072, 0, 8, 128, 'causal', table='past', bias=True),
  'longformer_base': Shape(1, 4096, 1, 12, 64, window=257, sinks=1, rate=0.1),
}


def operands(shape: Shape, key: Array, dtype=jnp.bfloat16) -> Operands:
  """Random operands of a shape: full rows, of one example each. Under `jax.eval_shape`, none."""
  draws = iter(jax.random.split(key, 16))

  def normal(*dims: int) -> Array:
    return jax.random.normal(next(draws), dims, dtype)

  rows, queries, keys, heads, size = shape.rows, shape.queries, shape.keys, shape.heads, shape.size
  q, k, v = (normal(rows, length, heads, size) for length in (queries, keys, keys))
  seen, dropout = mask(shape, next(draws)), None
  if shape.rate:
    noise = dropout_lib.Noise(jnp.uint32(1), jnp.arange(rows, dtype=jnp.uint32))
    dropout = Dropout(shape.rate, noise, dropout_lib.site(('attention',)))
  if not shape.table:
    return Operands(q, k, v, seen, None, dropout)
  far = keys - 1 if shape.table == 'past' else keys  # XLNet's tables have a row to spare
  count = far + dict(past=1, both=queries, mirror=keys)[shape.table]
  fields = {}
  if shape.bias:
    fields['bias_NR'] = normal(heads, count).astype(jnp.float32)
  elif shape.by_keys:
    fields |= dict(r_RNH=normal(count, heads, size), p_RNH=normal(count, heads, size))
  else:
    u, w, r = normal(heads, size), normal(heads, size), normal(count, heads, size)
    fields |= dict(u_NH=u, w_NH=w, r_RNH=r)
  if shape.table == 'mirror':
    fields['direction_B'] = jnp.where(jnp.arange(rows) < -(-rows // 2), 1, -1)
  if shape.segment:
    half_BT = jnp.broadcast_to(jnp.arange(queries) * 4 // queries, (rows, queries))
    segment_BT = jnp.maximum(half_BT - 2, 0)  # the reused half and A, then B
    memory_BM = jnp.zeros((rows, shape.memory), jnp.int32)
    segment_BS = jnp.concatenate([memory_BM, segment_BT], 1)
    z, embedding = normal(heads, size), normal(2, heads, size)
    fields['segment'] = Segment(z, embedding, segment_BT, segment_BS)
  return Operands(q, k, v, seen, Relative(far=far, scale=shape.scale, **fields), dropout)


def mask(shape: Shape, key: Array) -> Mask:
  """Returns the shape's mask; XLNet's orders are drawn by `key`."""
  rows, queries, keys = shape.rows, shape.queries, shape.keys
  ones = lambda length: jnp.ones((rows, length), jnp.int32)
  fields: dict[str, Any] = {}
  if shape.order == 'permuted':
    order_BT, before_BT = jax.vmap(lambda key: _permuted(key, queries))(jax.random.split(key, rows))
    memory_BM = jnp.full((rows, shape.memory), -2, jnp.int32)
    before_BS = jnp.concatenate([memory_BM, before_BT], 1)
    fields = dict(order_q_BT=order_BT, order_k_BS=before_BS)
  fields |= dict(
    window=shape.window, sinks=shape.sinks, see_self=shape.see_self, causal=shape.order == 'causal'
  )
  return Mask(ones(queries), ones(keys), whole=True, **fields)


def _permuted(key: Array, length: int) -> tuple[Array, Array]:
  """Orders of queries and keys as XLNet has them, a sixth of the tokens as targets: int32 [T]."""
  place, choice = jax.random.split(key)
  reuse = length // 2
  half = jnp.arange(length) // reuse
  # Sorting by (half, random) permutes within the halves.
  random = jax.random.uniform(place, (length,))
  index = jnp.argsort(jnp.argsort(half + random)).astype(jnp.int32) - half * reuse
  target = jax.random.uniform(choice, (length,)) < 1 / 6
  before = jnp.where(target, index, -1)
  order = jnp.where(target, before, before + 1)
  return order + half * (reuse + 1), before + half * (reuse + 1)
