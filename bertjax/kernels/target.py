"""The device that a program is traced for: that of the process, or one that is not there."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import NamedTuple

import jax


class Target(NamedTuple):
  """A kind of device that need not be there."""

  kind: str  # as jax names it: 'TPU v5 lite', 'NVIDIA H200'

  @property
  def platform(self) -> str:
    """Returns tpu or gpu, as jax names backends."""
    return 'tpu' if self.kind.startswith('TPU') else 'gpu'


_TARGET: contextvars.ContextVar[Target | None] = contextvars.ContextVar('target', default=None)


@contextlib.contextmanager
def compiled_for(kind: str) -> Iterator[None]:
  """Within it, what is traced is for this kind of device, which need not be there."""
  token = _TARGET.set(Target(kind))
  try:
    yield
  finally:
    _TARGET.reset(token)


def absent() -> bool:
  """Returns True if the device need not be there."""
  return _TARGET.get() is not None


def platform() -> str:
  """Returns the platform of the device: tpu, gpu or cpu."""
  given = _TARGET.get()
  return given.platform if given else jax.default_backend()


def kind() -> str:
  """Returns the kind of the device."""
  given = _TARGET.get()
  return given.kind if given else jax.devices()[0].device_kind
