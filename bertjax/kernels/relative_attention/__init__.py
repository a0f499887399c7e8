"""Attention with vector masks and relative terms: one meaning, implementations by name (api.py)."""

from bertjax.kernels.relative_attention.api import IMPLEMENTATIONS as IMPLEMENTATIONS
from bertjax.kernels.relative_attention.api import KERNELS as KERNELS
from bertjax.kernels.relative_attention.api import Dropout as Dropout
from bertjax.kernels.relative_attention.api import Mask as Mask
from bertjax.kernels.relative_attention.api import Relative as Relative
from bertjax.kernels.relative_attention.api import Segment as Segment
from bertjax.kernels.relative_attention.api import default as default
from bertjax.kernels.relative_attention.api import relative_attention as relative_attention
from bertjax.kernels.relative_attention.api import visible as visible
