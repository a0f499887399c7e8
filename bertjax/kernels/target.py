"""The device that a program is traced for: that of the process, or one that is not there."""

import contextlib
import contextvars
from collections.abc import Iterator

import jax

_KIND: contextvars.ContextVar[str | None] = contextvars.ContextVar('kind', default=None)


@contextlib.contextmanager
def compiled_for(kind: str) -> Iterator[None]:
  """Within it, what is traced is for this kind of device, which need not be there: a name of jax,
  'TPU v5 lite' or 'NVIDIA H200'."""
  token = _KIND.set(kind)
  try:
    yield
  finally:
    _KIND.reset(token)


def absent() -> bool:
  """Returns True if the device need not be there."""
  return _KIND.get() is not None


def platform_of(kind: str) -> str:
  """Returns tpu or gpu, as jax names backends, of a kind for which `compiled_for` is."""
  return 'tpu' if kind.startswith('TPU') else 'gpu'


def platform() -> str:
  """Returns the platform of the device: tpu, gpu or cpu."""
  given = _KIND.get()
  return platform_of(given) if given else jax.default_backend()


def kind() -> str:
  """Returns the kind of the device."""
  return _KIND.get() or jax.devices()[0].device_kind
