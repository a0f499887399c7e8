"""What the kernels share: linear parts folded away, masks as vectors, the blocks to visit.

Biases of the query and the segment products are plain JAX outside of the kernels, so their
gradients are autodiff's and a kernel's core has seven arrays to differentiate at most.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bertjax.kernels import dropout as dropout_lib
from bertjax.kernels.relative_attention.operands import Dropout, Mask, Relative, nearest

Array = jax.Array


class Folded(NamedTuple):
  """The operands that have gradients; the score is

  `q . k + w . r[row] + bias[row] + segment[1 if the segments differ else 0]`.

  Attributes:
    q_BTNH: (q + u) * scale, in the dtype of q as are w, k, v and r.
    w_BTNH: (q + w) * scale, or None without r.
    segment_BNT2: (q + z) . embedding * scale in float32, or None.
  """

  q_BTNH: Array
  k_BSNH: Array
  v_BSNH: Array
  w_BTNH: Array | None = None
  r_RNH: Array | None = None
  bias_NR: Array | None = None
  segment_BNT2: Array | None = None


class Vectors(NamedTuple):
  """The operands without gradients; None where the feature is absent. int32, the words uint32."""

  example_q_BT: Array
  example_k_BS: Array
  order_q_BT: Array | None = None
  order_k_BS: Array | None = None
  global_q_BT: Array | None = None
  global_k_BS: Array | None = None
  segment_q_BT: Array | None = None
  segment_k_BS: Array | None = None
  direction_B: Array | None = None
  word_B2: Array | None = None  # `dropout.row_words`
  head_N: Array | None = None  # global numbers of the heads


@dataclasses.dataclass(frozen=True)
class Rules:
  """What is static: `Mask.window`, `Mask.see_self`, `Relative.far`, `nearest`, `Dropout.rate`."""

  window: int | None
  see_self: bool
  far: int
  near: int | None
  rate: float


def fold(
  q_BTNH: Array,
  k_BSNH: Array,
  v_BSNH: Array,
  mask: Mask,
  relative: Relative | None,
  dropout: Dropout | None,
) -> tuple[Folded, Vectors, Rules]:
  """The operands of `relative_attention` as a kernel's core takes them."""
  relative = relative or Relative()
  scale = q_BTNH.shape[-1] ** -0.5 if relative.scale is None else relative.scale
  dtype = q_BTNH.dtype

  def biased(bias_NH: Array | None) -> Array:
    x_BTNH = q_BTNH if bias_NH is None else q_BTNH + bias_NH[None, None].astype(dtype)
    return x_BTNH * scale

  r_RNH, segment = relative.r_RNH, relative.segment
  folded = Folded(biased(relative.u_NH), k_BSNH, v_BSNH, bias_NR=relative.bias_NR)
  if r_RNH is not None:
    folded = folded._replace(w_BTNH=biased(relative.w_NH), r_RNH=r_RNH.astype(dtype))

  def whole(x: Any) -> Any:
    return None if x is None else jnp.asarray(x).astype(jnp.int32)

  vectors = Vectors(
    whole(mask.example_q_BT), whole(mask.example_k_BS), whole(mask.order_q_BT),
    whole(mask.order_k_BS), whole(mask.global_q_BT), whole(mask.global_k_BS),
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
  if relative.direction_B is not None and relative.rows:
    vectors = vectors._replace(direction_B=whole(relative.direction_B))
  if dropout is not None:
    words = dropout_lib.row_words(dropout.noise, dropout.site)
    head_N = jnp.asarray(dropout.head).astype(jnp.uint32) + jnp.arange(
      q_BTNH.shape[2], dtype=jnp.uint32
    )
    vectors = vectors._replace(word_B2=jnp.stack(words, axis=1), head_N=head_N)
  near = nearest(relative, q_BTNH.shape[1])
  rate = 0.0 if dropout is None else dropout.rate
  return folded, vectors, Rules(mask.window, mask.see_self, relative.far, near, rate)


def visits(vectors: Vectors, rules: Rules, block_q: int, block_k: int) -> Array:
  """Which blocks may hold a visible pair: bool [B, I, J], from the extremes of the vectors.

  A block is left out where its ids cannot meet, its queries' orders are not above its keys', it is
  outside of the window or beyond the table. Exact for packed rows, causal order and windows; where
  ids or orders are in no order it may visit a block that turns out to be empty.
  """
  (queries, keys) = vectors.example_q_BT.shape[1], vectors.example_k_BS.shape[1]
  blocks_q, blocks_k = -(-queries // block_q), -(-keys // block_k)
  big = jnp.iinfo(jnp.int32).max

  def extremes(x_BL: Array, there_BL: Array, size: int) -> tuple[Array, Array]:
    """Smallest and largest value of each block among those that are there, [B, blocks]."""

    def each(reduce, fill: int) -> Array:
      x = jnp.where(there_BL, x_BL, fill)
      x = jnp.pad(x, ((0, 0), (0, -x.shape[1] % size)), constant_values=fill)
      return reduce(x.reshape(x.shape[0], -1, size), axis=-1)

    return each(jnp.min, big), each(jnp.max, -big)

  def both(name: str) -> tuple[Array, Array, Array, Array]:
    least_q, most_q = extremes(getattr(vectors, f'{name}_q_BT'), there_q, block_q)
    least_k, most_k = extremes(getattr(vectors, f'{name}_k_BS'), there_k, block_k)
    return least_q[:, :, None], most_q[:, :, None], least_k[:, None, :], most_k[:, None, :]

  there_q, there_k = vectors.example_q_BT != 0, vectors.example_k_BS != 0
  least_q, most_q, least_k, most_k = both('example')
  seen_BIJ = (least_q <= most_k) & (least_k <= most_q)

  # Distances within a block, largest and smallest: its first query's column is keys - queries + ..
  first_I1 = (keys - queries + jnp.arange(blocks_q) * block_q)[:, None]
  first_1J = (jnp.arange(blocks_k) * block_k)[None]
  last_I1 = jnp.minimum(first_I1 + block_q, keys) - 1
  last_1J = jnp.minimum(first_1J + block_k, keys) - 1
  most_IJ, least_IJ = last_I1 - first_1J, first_I1 - last_1J
  if vectors.order_q_BT is not None:
    _, most_q, least_k, _ = both('order')
    ahead_BIJ = most_q > least_k
    if rules.see_self:
      ahead_BIJ |= ((most_IJ >= 0) & (least_IJ <= 0))[None]
    seen_BIJ &= ahead_BIJ
  if rules.window is not None:
    near_BIJ = ((most_IJ > -rules.window) & (least_IJ < rules.window))[None]
    if vectors.global_q_BT is not None:
      _, most_q, _, most_k = both('global')
      near_BIJ = near_BIJ | (most_q > 0) | (most_k > 0)
    seen_BIJ &= near_BIJ
  if rules.near is not None:
    seen_BIJ &= (most_IJ >= rules.near)[None]
  return seen_BIJ


def listed(seen: Array) -> tuple[Array, Array]:
  """For a loop: indices of the last axis, those visited first and in order, and their number."""
  order = jnp.argsort(~seen, axis=-1, stable=True).astype(jnp.int32)
  return order, jnp.sum(seen, axis=-1, dtype=jnp.int32)
