"""Operands of the GPU kernels: linear parts folded away, masks as vectors, blocks to visit.

Biases of the query, segment products and the products with the table of positions are plain JAX
outside of the kernels: autodiff gives their gradients, and a kernel's core has at most seven arrays
to differentiate. The products with positions are one large product, the band, T + S columns wide
for each query; a kernel reads its row t from one column further left than row t - 1, which is the
shift. It takes T (T + S) numbers of memory a row and head; one of the keys' products S (T + S)."""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp

from bertjax.kernels import dropout as dropout_lib
from bertjax.kernels.relative_attention import block_sparsity, distance_tables
from bertjax.kernels.relative_attention.operands import Mask, Operands, Relative
from bertjax.types import Array


class Folded(NamedTuple):
  """The operands that have gradients: `score = q . k + band[t, column] + by_keys[s, column] +
  bias[row] + segment[0 or 1]`.

  q holds (q + u) * scale in the dtype of q, as are k, v and the bands. A pair's column is
  T - 1 - t + s in the band of the queries and S - 1 - s + t in that of the keys (`_band`). Segment
  holds (q + z) . embedding * scale in float32, for the same segment and for another one."""

  q_BTNH: Array
  k_BSNH: Array
  v_BSNH: Array
  band_NBTR: Array | None = None
  by_keys_NBSR: Array | None = None
  bias_NR: Array | None = None
  segment_BNT2: Array | None = None


class Vectors(NamedTuple):
  """The operands without gradients; None where the feature is absent. int32, the words uint32.

  The first four are those of `Mask`, in its order.
  """

  example_q_BT: Array
  example_k_BS: Array
  order_q_BT: Array | None = None
  order_k_BS: Array | None = None
  segment_q_BT: Array | None = None
  segment_k_BS: Array | None = None
  direction_B: Array | None = None
  word_B2: Array | None = None  # `dropout.row_words`
  head_N: Array | None = None  # global numbers of the heads


@dataclasses.dataclass(frozen=True)
class Rules:
  """Static values of `Mask`, `Relative`, `Operands` and `Dropout`."""

  window: int | None
  sinks: int
  see_self: bool
  far: int
  near: int | None
  rate: float


def fold(x: Operands) -> tuple[Folded, Vectors, Rules]:
  """Returns the operands of `relative_attention` as a kernel's core takes them."""
  q_BTNH, mask, relative, dropout = x.q_BTNH, x.mask, x.relative or Relative(), x.dropout
  dtype, scale = q_BTNH.dtype, x.scale

  def biased(bias_NH: Array | None) -> Array:
    return (q_BTNH if bias_NH is None else q_BTNH + bias_NH[None, None].astype(dtype)) * scale

  segment = relative.segment
  folded = Folded(biased(relative.u_NH), x.k_BSNH, x.v_BSNH, bias_NR=relative.bias_NR)
  if relative.r_RNH is not None:
    band_NBTR = _band(biased(relative.w_NH), relative.r_RNH, relative, x.k_BSNH.shape[1])
    folded = folded._replace(band_NBTR=band_NBTR)
  if relative.p_RNH is not None:  # seen from the keys, distances have the other sign
    mirrored = dataclasses.replace(relative, far=relative.rows - 1 - relative.far)
    by_keys_NBSR = _band(x.k_BSNH * scale, relative.p_RNH[::-1], mirrored, q_BTNH.shape[1])
    folded = folded._replace(by_keys_NBSR=by_keys_NBSR)

  def whole(x: Any) -> Any:
    return None if x is None else jnp.asarray(x).astype(jnp.int32)

  vectors = Vectors(
    whole(mask.example_q_BT), whole(mask.example_k_BS), whole(mask.order_q_BT),
    whole(mask.order_k_BS),
  )  # fmt: skip
  if segment is not None:
    embedding_2NH = segment.embedding_2NH.astype(dtype)
    segment_BNT2 = jnp.einsum(
      'BTNH,KNH->BNTK', biased(segment.z_NH), embedding_2NH, preferred_element_type=jnp.float32
    )
    folded = folded._replace(segment_BNT2=segment_BNT2)
    vectors = vectors._replace(
      segment_q_BT=whole(segment.segment_q_BT), segment_k_BS=whole(segment.segment_k_BS)
    )
  if relative.direction_B is not None and relative.bias_NR is not None:
    vectors = vectors._replace(direction_B=whole(relative.direction_B))
  if dropout is not None:
    words = dropout_lib.row_words(dropout.noise, dropout.site)
    head_N = jnp.asarray(dropout.head).astype(jnp.uint32) + jnp.arange(
      q_BTNH.shape[2], dtype=jnp.uint32
    )
    vectors = vectors._replace(word_B2=jnp.stack(words, axis=1), head_N=head_N)
  rate = 0.0 if dropout is None else dropout.rate
  return (
    folded,
    vectors,
    Rules(mask.window, mask.sinks, mask.see_self, relative.far, x.nearest, rate),
  )


def _band(w_BTNH: Array, r_RNH: Array, relative: Relative, others: int) -> Array:
  """Products of each of T queries, or keys, with the rows of r for the distances S - 1 .. -T to S
  others, [N, B, T, R]."""
  width = -(-(w_BTNH.shape[1] + others) // 16) * 16  # rows of a product that cuBLAS stores in whole
  r_RNH, far = r_RNH.astype(w_BTNH.dtype), relative.far
  ahead_RNH = distance_tables.span(r_RNH, far, others - 1, width)
  if relative.direction_B is None:
    return jnp.einsum('BTNH,RNH->NBTR', w_BTNH, ahead_RNH)
  # One product, twice as deep, of which a row of the batch takes its direction's half: with a table
  # for each row these would be read as often as the band is written.
  back_RNH = distance_tables.span(r_RNH[::-1], r_RNH.shape[0] - 1 - far, others - 1, width)
  back_B111 = (relative.direction_B < 0)[:, None, None, None]
  halves = jnp.where(back_B111, 0, w_BTNH), jnp.where(back_B111, w_BTNH, 0)
  w_BTNH = jnp.concatenate(halves, axis=-1)
  return jnp.einsum('BTNH,RNH->NBTR', w_BTNH, jnp.concatenate([ahead_RNH, back_RNH], axis=-1))


def seen(vectors: Vectors, rules: Rules, block_q: int, block_k: int) -> Array:
  """Returns the blocks that may hold a visible pair, see `block_sparsity.seen`: bool [B, I, J]."""
  mask = Mask(*vectors[:4], window=rules.window, sinks=rules.sinks, see_self=rules.see_self)
  memory = vectors.example_k_BS.shape[1] - vectors.example_q_BT.shape[1]
  return block_sparsity.seen(mask, memory, rules.near, block_q, block_k)
