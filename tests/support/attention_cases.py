"""Operands for the attention tests, and the operation once more: as a formula, in float64."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bertjax.kernels import dropout as dropout_lib
from bertjax.kernels.relative_attention import Dropout, Mask, Relative, Segment
from bertjax.kernels.relative_attention.operands import Operands
from bertjax.kernels.relative_attention.tuning import KERNELS, Entry, Tile, using


def small_tiles(side: int = 16):
  """Within it, kernels have tiles so small that every case has several."""
  names = [name for kernels in KERNELS.values() for name in kernels]
  return using((Entry(dict.fromkeys(names, Tile(side, side))),))


class Case(NamedTuple):
  """What an operation has. Most sizes are odd on purpose, so that no block divides them."""

  name: str
  queries: int = 19
  memory: int = 0
  rows: int = 2
  heads: int = 2
  size: int = 32
  order: str = ''  # causal, random
  window: int | None = None
  sinks: int = 0
  see_self: bool = False
  by_keys: bool = False  # keys have a product with distances, too
  table: str = ''  # both: all distances; past: ends at 0; mirror: for rows that run backwards
  bias: bool = False
  biases: bool = False  # u and w
  segment: bool = False
  scale: float | None = None
  rate: float = 0.0
  dtype: Any = jnp.float32

  @property
  def keys(self) -> int:
    return self.memory + self.queries


CASES = (
  Case('bert', rate=0.1),
  Case('transformer_xl', memory=14, order='causal', window=13, table='past', biases=True),
  Case('transformer_xl_head41', memory=5, rows=1, size=41, table='past', biases=True, rate=0.2),
  Case('xlnet', memory=14, order='random', see_self=True, table='both', biases=True, segment=True),
  Case(
    'xlnet_query_stream', memory=9, order='random', table='mirror', biases=True, segment=True,
    rate=0.1,
  ),
  Case('t5', table='both', bias=True, scale=1.0),
  Case('alibi', memory=8, order='causal', table='both', bias=True),
  Case('deberta', queries=20, rows=1, table='both', by_keys=True, scale=96**-0.5, rate=0.1),
  Case('deberta_and_more', queries=20, memory=8, order='random', table='mirror', by_keys=True,
       biases=True),
  Case('deberta_past', queries=21, memory=6, rows=1, table='past', by_keys=True),
  Case('modernbert', queries=40, rows=1, window=5, rate=0.1),
  Case('modernbert_long', queries=97, rows=1, window=12, rate=0.1),
  Case('transformer_xl_long', queries=61, memory=14, rows=1, order='causal', window=5,
       table='past', biases=True, rate=0.1),
  Case('longformer', queries=40, memory=4, rows=1, window=5, sinks=4),
  Case('longformer_long', queries=61, memory=4, window=5, sinks=4, rate=0.1),
  Case(
    'all', memory=11, order='random', window=17, sinks=6, see_self=True, table='mirror',
    bias=True, biases=True, segment=True, rate=0.3, size=64,
  ),
  Case(
    'all_bfloat16', memory=11, order='random', see_self=True, table='mirror', bias=True,
    biases=True, segment=True, rate=0.3, dtype=jnp.bfloat16,
  ),
)  # fmt: skip
BY_NAME = {case.name: case for case in CASES}


class Built(NamedTuple):
  """Operands of a case; what can be differentiated is in `values`, by name."""

  case: Case
  values: dict[str, np.ndarray]
  mask: Mask
  relative: Relative
  dropout: Dropout | None
  tangent_BTNH: np.ndarray


def _examples(rng, case: Case) -> tuple[np.ndarray, np.ndarray]:
  """Packed examples with padding at the end; the memory belongs to the first, part of it void."""
  example_BT = np.sort(rng.integers(1, 3, (case.rows, case.queries)), axis=1)
  example_BT[:, case.queries - 2 :] = 0
  memory_BM = (np.arange(case.memory) >= 3)[None].repeat(case.rows, 0).astype(np.int64)
  return example_BT.astype(np.int32), np.concatenate([memory_BM, example_BT], 1).astype(np.int32)


def _mask(rng, case: Case) -> Mask:
  example_BT, example_BS = _examples(rng, case)
  causal = case.order == 'causal'
  fields: dict[str, Any] = dict(
    window=case.window, sinks=case.sinks, see_self=case.see_self, causal=causal
  )
  if case.order == 'random':
    order_BT = rng.integers(0, 9, (case.rows, case.queries)).astype(np.int32)
    before_BM = np.full((case.rows, case.memory), -2, np.int32)
    fields |= dict(order_q_BT=order_BT, order_k_BS=np.concatenate([before_BM, order_BT], 1))
  return Mask(example_BT, example_BS, **fields)


def build(case: Case, seed: int = 0) -> Built:
  """Random operands of a case."""
  rng = np.random.default_rng(seed)
  normal = lambda *shape: rng.normal(size=shape).astype(np.float32)
  heads, size = case.heads, case.size
  values = {
    'q': normal(case.rows, case.queries, heads, size),
    'k': normal(case.rows, case.keys, heads, size),
    'v': normal(case.rows, case.keys, heads, size),
  }
  far = case.keys if case.table in ('both', 'mirror') else case.keys - 1  # XLNet has a row to spare
  last = dict(both=1 - case.queries, past=0, mirror=-case.keys).get(case.table, 0)
  count = far - last + 1
  if case.table and not (case.bias and not case.biases):
    values['r'] = normal(count, heads, size)
  if case.by_keys:
    values['p'] = normal(count, heads, size)
  if case.bias:
    values['bias'] = normal(heads, count)
  if case.biases:
    values |= dict(u=normal(heads, size), w=normal(heads, size))
  segment = {}
  if case.segment:
    values |= dict(z=normal(heads, size), embedding=normal(2, heads, size))
    segment = dict(
      segment_q_BT=rng.integers(0, 3, (case.rows, case.queries)).astype(np.int32),
      segment_k_BS=rng.integers(0, 3, (case.rows, case.keys)).astype(np.int32),
    )
  values = {name: np.asarray(jnp.asarray(x, case.dtype)) for name, x in values.items()}
  if 'bias' in values:
    values['bias'] = values['bias'].astype(np.float32)
  direction = np.where(np.arange(case.rows) % 2, -1, 1).astype(np.int32)
  relative = Relative(
    segment=Segment(None, None, **segment) if segment else None,
    direction_B=direction if case.table == 'mirror' else None, far=far, scale=case.scale,
  )  # fmt: skip
  noise = dropout_lib.Noise(jnp.uint32(7), jnp.arange(case.rows, dtype=jnp.uint32) + 5)
  dropout = Dropout(case.rate, noise, dropout_lib.site(('a',)), head=3) if case.rate else None
  mask = _mask(rng, case)
  return Built(case, values, mask, relative, dropout, normal(*values['q'].shape))


def fill(built: Built, values: dict[str, Any]) -> Relative:
  """The relative operand with its arrays in place."""
  fields = {k: getattr(built.relative, k) for k in ('far', 'scale', 'direction_B')}
  named = dict(r='r_RNH', p='p_RNH', bias='bias_NR', u='u_NH', w='w_NH')
  fields |= {full: values.get(short) for short, full in named.items()}
  segment = built.relative.segment
  if segment is not None:
    segment = Segment(values['z'], values['embedding'], segment.segment_q_BT, segment.segment_k_BS)
  return Relative(segment=segment, **fields)


def operands(built: Built, values: dict[str, Any]) -> Operands:
  """The operands of a case with these values."""
  q, k, v = (values[name] for name in 'qkv')
  return Operands(q, k, v, built.mask, fill(built, values), built.dropout)


def seen(mask: Mask, near: int | None = None) -> np.ndarray:
  """The mask pair by pair, bool [B, T, S]."""
  rows, queries = mask.example_q_BT.shape
  keys = mask.example_k_BS.shape[1]
  out = np.zeros((rows, queries, keys), bool)
  for b, t, s in np.ndindex(out.shape):
    distance = keys - queries + t - s
    example = mask.example_q_BT[b, t] == mask.example_k_BS[b, s] != 0
    order = mask.order_q_BT is None or mask.order_q_BT[b, t] > mask.order_k_BS[b, s]
    window = mask.window is None or abs(distance) < mask.window or s < mask.sinks
    own = mask.see_self and distance == 0
    past = (near is None or distance >= near) and not (mask.causal and distance < 0)
    out[b, t, s] = example and (order or own) and window and past
  return out


def kept(built: Built) -> np.ndarray:
  """1 / (1 - rate) where dropout keeps a probability and 0 elsewhere, [B, N, T, S]."""
  case, dropout = built.case, built.dropout
  if dropout is None:
    return np.ones((1, 1, 1, 1))
  heads = dropout.head + case.heads
  shape = (case.rows, heads, case.queries, case.keys)
  bits = np.asarray(dropout_lib.random_bits(dropout.noise, dropout.site, shape))[:, dropout.head :]
  return (bits >= np.uint32(round(case.rate * 2**32))) / (1 - case.rate)


def formula(built: Built, values: dict[str, Any], kept_BNTS: np.ndarray) -> Any:
  """The definition, term by term and pair by pair, in the dtype of the values: [B, T, N, H]."""
  case, x = built.case, values
  distance_TS = case.memory + np.arange(case.queries)[:, None] - np.arange(case.keys)[None]
  direction = built.relative.direction_B
  sign_B = np.ones(case.rows, int) if direction is None else direction
  row_BTS = built.relative.far - sign_B[:, None, None] * distance_TS
  near = 0 if case.table == 'past' else None
  biased = lambda name: x['q'] + x[name][None, None] if name in x else x['q']
  score = jnp.einsum('btnh,bsnh->bnts', biased('u'), x['k'])
  if 'r' in x:
    r_BTSNH = x['r'][np.clip(row_BTS, 0, len(x['r']) - 1)]
    score += jnp.einsum('btnh,btsnh->bnts', biased('w'), r_BTSNH)
  if 'p' in x:
    p_BTSNH = x['p'][np.clip(row_BTS, 0, len(x['p']) - 1)]
    score += jnp.einsum('bsnh,btsnh->bnts', x['k'], p_BTSNH)
  if case.segment:
    segment = built.relative.segment
    other_BTS = segment.segment_q_BT[:, :, None] != segment.segment_k_BS[:, None, :]
    chosen_BTSNH = x['embedding'][other_BTS.astype(int)]
    score += jnp.einsum('btnh,btsnh->bnts', biased('z'), chosen_BTSNH)
  score *= case.size**-0.5 if case.scale is None else case.scale
  if 'bias' in x:
    score += jnp.moveaxis(x['bias'][:, row_BTS], 0, 1)
  seen_B1TS = seen(built.mask, near)[:, None]
  power = jnp.where(seen_B1TS, jnp.exp(score - score.max(-1, keepdims=True)), 0)
  total = power.sum(-1, keepdims=True)
  prob = power / jnp.where(total > 0, total, 1) * kept_BNTS
  return jnp.einsum('bnts,bsnh->btnh', prob, x['v'])


def with_gradients(built: Built, attend, values: dict[str, Any]) -> dict[str, np.ndarray]:
  """Returns the output and the gradient of every value, by name, as float64. `attend(values)` is
  the operation; its output is summed against a fixed tangent."""

  def total(values):
    y = attend(values)
    return jnp.sum(y * built.tangent_BTNH.astype(y.dtype)), y

  (_, y), slopes = jax.jit(jax.value_and_grad(total, has_aux=True))(values)
  return {'y': np.float64(y)} | {f'd{name}': np.float64(x) for name, x in slopes.items()}


def oracle(built: Built) -> dict[str, np.ndarray]:
  """`with_gradients` of the formula in float64."""
  scale_BNTS = kept(built)
  with jax.enable_x64(True):
    values = {name: jnp.asarray(x, jnp.float64) for name, x in built.values.items()}
    return with_gradients(built, lambda v: formula(built, v, scale_BNTS), values)
