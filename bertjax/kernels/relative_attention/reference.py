"""The meaning of the attention operation, in plain JAX."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bertjax.kernels import dropout as dropout_lib

Array = jax.Array


class Mask(NamedTuple):
  """Who sees whom, as vectors; never a [T, S] array in the arguments.

  Query t sees key s iff `example_q[t] == example_k[s]`, that id is not 0 (padding) and, with
  orders, `order_q[t] > order_k[s]`. Two packed examples of 2 and 1 tokens and one pad,
  `example = [1 1 2 0]`:

        keys  1 1 2 0
    query 1   x x . .
          1   x x . .
          2   . . x .
          0   . . . .      a row that sees nothing returns zeros and passes no gradient

  Attributes:
    example_q_BT: int32 example ids of the queries.
    example_k_BS: int32 example ids of the keys.
    order_q_BT, order_k_BS: int32, or None for both; causal attention has column + 1 and column.
  """

  example_q_BT: Array
  example_k_BS: Array
  order_q_BT: Array | None = None
  order_k_BS: Array | None = None


class Dropout(NamedTuple):
  """Dropout on the attention probabilities: rate (static), the step's noise and the site."""

  rate: float
  noise: dropout_lib.Noise
  site: Array


def visible(mask: Mask) -> Array:
  """The mask as bool [B, T, S]; for the reference and for tests only."""
  query_BT1, key_B1S = mask.example_q_BT[:, :, None], mask.example_k_BS[:, None, :]
  seen_BTS = (query_BT1 == key_B1S) & (query_BT1 > 0)
  if mask.order_q_BT is None or mask.order_k_BS is None:
    return seen_BTS
  return seen_BTS & (mask.order_q_BT[:, :, None] > mask.order_k_BS[:, None, :])


def attend(
  q_BTNH: Array, k_BSNH: Array, v_BSNH: Array, mask: Mask, dropout: Dropout | None
) -> Array:
  """softmax(q k^T / sqrt(H)) v over the visible keys, softmax in float32.

  Args:
    q_BTNH: queries, float32 or bfloat16.
    k_BSNH: keys.
    v_BSNH: values.
    mask: who sees whom.
    dropout: None for none.

  Returns:
    [B, T, N, H] in the dtype of v.
  """
  seen_B1TS = visible(mask)[:, None]
  scale = q_BTNH.shape[-1] ** -0.5
  score_BNTS = jnp.einsum(
    'BTNH,BSNH->BNTS', q_BTNH * scale, k_BSNH, preferred_element_type=jnp.float32
  )
  score_BNTS = jnp.where(seen_B1TS, score_BNTS, jnp.finfo(jnp.float32).min)
  prob_BNTS = jnp.where(seen_B1TS, jax.nn.softmax(score_BNTS, axis=-1), 0.0)
  if dropout is not None:
    prob_BNTS = dropout_lib.dropout(prob_BNTS, *dropout)
  return jnp.einsum('BNTS,BSNH->BTNH', prob_BNTS.astype(v_BSNH.dtype), v_BSNH)
