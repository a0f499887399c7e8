"""Compiles the attention operation with the TPU compiler: whether it compiles, and its memory."""

import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax

from bertjax.kernels import target as target_lib
from bertjax.kernels.relative_attention import relative_attention
from bertjax.kernels.relative_attention.arg_specs import Shape
from bertjax.tools.bench.parts import passes
from bertjax.tools.preflight import topology


def attempt(target: Any, shape: Shape, impl: str) -> dict[str, Any]:
  """Compiles forward and backward for a device. Returns seconds, and temp_bytes (the compiler's
  temporary memory) or reason (why it does not compile)."""
  start, attention = time.perf_counter(), functools.partial(relative_attention, impl=impl)
  arguments = topology.on(target, jax.eval_shape(lambda: passes.arguments(shape)))
  try:
    with target_lib.compiled_for(target.device_kind):
      lowered = jax.jit(passes.forward_backward(attention)).lower(*arguments)
    compiled = topology.compile_absent(lowered)
    said: dict[str, Any] = dict(temp_bytes=topology.memory(compiled)['temp_bytes'])
  except Exception as error:  # of many types; whatever it is goes into the table
    said = dict(reason=topology.reason(error))
  return said | dict(seconds=round(time.perf_counter() - start, 1))


def compiles(
  kinds: Sequence[str], impls: Sequence[str], shapes: Mapping[str, Shape]
) -> Iterator[dict[str, Any]]:
  """Yields a row for each kind of TPU, shape and implementation."""
  for kind in kinds:
    target = topology.device(kind)
    for name, shape in shapes.items():
      for impl in impls:
        yield dict(kind=kind, shape=name, impl=impl) | attempt(target, shape, impl)
