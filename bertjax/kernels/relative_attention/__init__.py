"""Attention with vector masks: one operation, one meaning, implementations by name."""

from bertjax.kernels.relative_attention.reference import Dropout as Dropout
from bertjax.kernels.relative_attention.reference import Mask as Mask
from bertjax.kernels.relative_attention.reference import attend as attend
from bertjax.kernels.relative_attention.reference import visible as visible
