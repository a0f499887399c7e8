"""How well code is compiled in a test: what runs once or for a moment need not be fast."""

import contextlib

import jax

KEY = 'jax_disable_most_optimizations'  # of LLVM; XLA's own passes stay


@contextlib.contextmanager
def optimized(on: bool):
  """What is compiled within it is compiled to be fast, or in half the time."""
  before = jax.config.read(KEY)
  jax.config.update(KEY, not on)
  try:
    yield
  finally:
    jax.config.update(KEY, before)
