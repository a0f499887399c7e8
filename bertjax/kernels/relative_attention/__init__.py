"""Attention with vector masks and relative terms: one meaning, implementations by name (api.py)."""

from bertjax.kernels.relative_attention.api import (
  IMPLEMENTATIONS,
  KERNELS,
  default,
  relative_attention,
)
from bertjax.kernels.relative_attention.operands import Dropout, Mask, Relative, Segment
from bertjax.kernels.relative_attention.reference import visible, weights

__all__ = (
  'IMPLEMENTATIONS', 'KERNELS', 'Dropout', 'Mask', 'Relative', 'Segment', 'default',
  'relative_attention', 'visible', 'weights',
)  # fmt: skip
