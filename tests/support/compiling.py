"""How well code is compiled in a test: what runs once or for a moment need not be fast."""

import contextlib
import os

import jax

KEY = 'jax_disable_most_optimizations'  # of LLVM; XLA's own passes stay
# Without XLA's newer emitters of fusions a test's program compiles in half of the time. No key of
# jax says so, and libtpu ends a process that has this flag; so does jaxlib 0.11, which has no such
# emitters.
_FLAG = '--xla_cpu_use_fusion_emitters=false' if jax.__version_info__ < (0, 11) else ''


def quickly(on: bool) -> None:
  """Compiles with little care from now on, or with that of users, and so do processes of tests."""
  os.environ[KEY.upper()] = str(int(on))
  jax.config.update(KEY, on)
  own = os.environ.get('XLA_FLAGS', '')
  os.environ['XLA_FLAGS'] = f'{own} {flags()}'.strip()
  jax.devices()  # reads the flags
  os.environ['XLA_FLAGS'] = own


def flags() -> str:
  """For XLA_FLAGS of processes of tests that have no libtpu."""
  return _FLAG if os.environ.get(KEY.upper()) == '1' else ''


@contextlib.contextmanager
def optimized(on: bool):
  """What is compiled within it is compiled to be fast, or in half the time."""
  before = jax.config.read(KEY)
  jax.config.update(KEY, not on)
  try:
    yield
  finally:
    jax.config.update(KEY, before)
