"""Attention with vector masks and relative terms: one meaning, implementations by name.

reference   every score at once; the meaning (`reference.py`)
xla         the same in blocks of queries; what CPUs run (`xla.py`)
gpu         a Pallas Triton kernel (`gpu.py`)
"""

import importlib

import jax

from bertjax.kernels.relative_attention.operands import Dropout as Dropout
from bertjax.kernels.relative_attention.operands import Mask as Mask
from bertjax.kernels.relative_attention.operands import Relative as Relative
from bertjax.kernels.relative_attention.operands import Segment as Segment
from bertjax.kernels.relative_attention.operands import check
from bertjax.kernels.relative_attention.reference import visible as visible

Array = jax.Array

IMPLEMENTATIONS = ('reference', 'xla', 'gpu')


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
    NotImplementedError: the named implementation does not take the operands; says why and which
      one does.
  """
  check(q_BTNH, k_BSNH, v_BSNH, mask, relative)
  if impl is None:
    impl = _fastest(q_BTNH, k_BSNH, v_BSNH)
  if impl not in IMPLEMENTATIONS:
    expected = ', '.join(IMPLEMENTATIONS)
    raise ValueError(f'attention: expected an implementation among {expected}; got {impl!r}')
  return _module(impl).attend(q_BTNH, k_BSNH, v_BSNH, mask, relative, dropout)


def _module(impl: str):
  """The implementation, imported when it is used: Pallas alone takes half a second."""
  return importlib.import_module(f'{__name__}.{impl}')


def _fastest(q_BTNH: Array, k_BSNH: Array, v_BSNH: Array) -> str:
  """The kernel of this machine where it takes the operands, else the one that always does."""
  # A kernel under jit has no sharding of its own: on several devices it would gather its operands.
  if jax.default_backend() == 'gpu' and jax.device_count() == 1:
    if _module('gpu').refusal(q_BTNH, k_BSNH, v_BSNH) is None:
      return 'gpu'
  return 'xla'
