"""Attention of new columns to the columns before them, whose keys and values are kept.

Another operation than `relative_attention`: there a query stands at column M + t of its keys, here
wherever the text has come to, behind which the cache is empty. Few queries meet many keys, so the
scores are small and what counts is that keys and values are read once.
"""

import jax
import jax.numpy as jnp

from bertjax.types import Array

FAR = -1e10


def attend(
  q_BTNH: Array,
  k_BNSH: Array,
  v_BNSH: Array,
  seen_BTS: Array,
  bias_NTS: Array | None = None,
  scale: float | None = None,
) -> Array:
  """Returns the values that each query sees, weighted by its scores; [B, T, N, H].

  Args:
    q_BTNH, k_BNSH, v_BNSH: queries of the new columns, keys and values of all.
    seen_BTS: bool, the keys that each query sees, one at least of a column that counts.
    bias_NTS: float32, added to the scaled scores.
    scale: of the scores; None: 1 / sqrt(H).
  """
  factor = q_BTNH.shape[-1] ** -0.5 if scale is None else scale
  scores_BNTS = jnp.einsum('BTNH,BNSH->BNTS', q_BTNH, k_BNSH, preferred_element_type=jnp.float32)
  scores_BNTS = scores_BNTS * factor
  if bias_NTS is not None:
    scores_BNTS = scores_BNTS + bias_NTS[None]
  scores_BNTS = jnp.where(seen_BTS[:, None], scores_BNTS, FAR)
  share_BNTS = jax.nn.softmax(scores_BNTS, -1).astype(v_BNSH.dtype)
  return jnp.einsum('BNTS,BNSH->BTNH', share_BNTS, v_BNSH)
