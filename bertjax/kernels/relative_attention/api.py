"""Attention with vector masks and relative terms: one meaning, implementations by name.

reference   every score at once; the meaning (`reference.py`)
xla         the same in blocks of queries; what CPUs run (`xla_chunked.py`)
tpu         a Pallas Mosaic kernel (`tpu/`)
gpu         a Pallas Triton kernel (`gpu/`)
cudnn       cuDNN's flash attention, of rows without relative terms (`gpu/cudnn.py`); by name alone
"""

import contextlib
import contextvars
import functools
import importlib
from collections.abc import Iterator

from bertjax.errors import warn
from bertjax.kernels import target
from bertjax.kernels.relative_attention.operands import Dropout, Mask, Operands, Relative, check
from bertjax.kernels.relative_attention.sharded import sharded
from bertjax.types import Array

KERNELS = ('tpu', 'gpu')  # each is named like the backend that it is for
IMPLEMENTATIONS = ('reference', 'xla', *KERNELS, 'cudnn')
_MODULE = dict(
  reference='reference', xla='xla_chunked', tpu='tpu.forward', gpu='gpu.forward', cudnn='gpu.cudnn'
)
_DIVIDED = ('reference', 'xla')  # by XLA itself, over a mesh

_DEFAULT: contextvars.ContextVar[str | None] = contextvars.ContextVar('impl', default=None)


@contextlib.contextmanager
def default(impl: str | None) -> Iterator[None]:
  """Within it, `impl=None` means this implementation: what is traced there is compared with it."""
  token = _DEFAULT.set(impl)
  try:
    yield
  finally:
    _DEFAULT.reset(token)


def relative_attention(
  q_BTNH: Array,
  k_BSNH: Array,
  v_BSNH: Array,
  mask: Mask,
  relative: Relative | None = None,
  dropout: Dropout | None = None,
  impl: str | None = None,
) -> Array:
  """Returns softmax(score) v over the visible keys, [B, T, N, H] in the dtype of v; scores are
  those of `Relative`, softmax is in float32. A query that sees nothing has zeros and passes no
  gradient.

  Raises ValueError: shapes disagree, a table is too short for the distances, or the mesh does not
  divide rows or heads. Raises NotImplementedError if the named implementation does not take the
  operands; says why and which one does.

  Args:
    q_BTNH, k_BSNH, v_BSNH, mask, relative, dropout: see `Operands`.
    impl: one of IMPLEMENTATIONS, which is used or raises; None: this machine's kernel, or xla where
      there is none or it declines, which is said once for each reason.
  """
  operands = Operands(q_BTNH, k_BSNH, v_BSNH, mask, relative, dropout)
  check(operands)
  impl = impl or _DEFAULT.get()
  if impl is None:
    kernel, impl = target.platform(), 'xla'
    if kernel in KERNELS:
      try:
        return _attend(kernel)(operands)
      except NotImplementedError as declined:
        _say_fallback(impl, str(declined))
  if impl not in IMPLEMENTATIONS:
    expected = ', '.join(IMPLEMENTATIONS)
    raise ValueError(f'attention: expected an implementation among {expected}; got {impl!r}')
  return _attend(impl)(operands)


@functools.cache
def _say_fallback(impl: str, reason: str) -> None:
  """Says it once: a step calls the operation in every layer, and is traced more than once."""
  warn('%s. So attention runs as %r, which is slower', reason, impl)


def _attend(impl: str):
  """Returns the implementation, imported when it is used: Pallas alone takes half a second."""
  attend = importlib.import_module(f'bertjax.kernels.relative_attention.{_MODULE[impl]}').attend
  return attend if impl in _DIVIDED else sharded(attend, single=impl not in KERNELS)
