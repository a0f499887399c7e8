"""Attention with vector masks and relative terms: one meaning, implementations by name.

reference   every score at once; the meaning (`reference.py`)
xla         the same in blocks of queries; what CPUs run (`xla.py`)
"""

import jax

from bertjax.kernels.relative_attention import reference, xla
from bertjax.kernels.relative_attention.operands import Dropout as Dropout
from bertjax.kernels.relative_attention.operands import Mask as Mask
from bertjax.kernels.relative_attention.operands import Relative as Relative
from bertjax.kernels.relative_attention.operands import Segment as Segment
from bertjax.kernels.relative_attention.operands import check
from bertjax.kernels.relative_attention.reference import visible as visible

Array = jax.Array

IMPLEMENTATIONS = {'reference': reference.attend, 'xla': xla.attend}


def relative_attention(
  q_BTNH: Array,
  k_BSNH: Array,
  v_BSNH: Array,
  mask: Mask,
  relative: Relative | None = None,
  dropout: Dropout | None = None,
  impl: str | None = None,
) -> Array:
  """softmax(score) v over the visible keys, with the scores of `Relative` and softmax in float32.

  Args:
    q_BTNH: queries, float32 or bfloat16.
    k_BSNH: keys, those of the memory first.
    v_BSNH: values.
    mask: who sees whom.
    relative: the terms that depend on distance or segment; None: q k^T / sqrt(H) alone.
    dropout: of the probabilities; None for none.
    impl: one of IMPLEMENTATIONS, which is used or raises; None: the fastest that takes the operands
      on this machine.

  Returns:
    [B, T, N, H] in the dtype of v. A query that sees nothing has zeros and passes no gradient.

  Raises:
    ValueError: shapes disagree, or a table is too short for the distances.
  """
  check(q_BTNH, k_BSNH, v_BSNH, mask, relative)
  if impl is None:
    impl = 'xla'
  if impl not in IMPLEMENTATIONS:
    expected = ', '.join(IMPLEMENTATIONS)
    raise ValueError(f'attention: expected an implementation among {expected}; got {impl!r}')
  return IMPLEMENTATIONS[impl](q_BTNH, k_BSNH, v_BSNH, mask, relative, dropout)
