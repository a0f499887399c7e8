"""What the TPU compiler says of a train step: its memory, and the bytes that it moves."""

import time
from typing import Any

import jax

from bertjax import sharding
from bertjax.bench import own_step, topology, traffic
from bertjax.kernels import relative_attention
from bertjax.kernels.relative_attention.tpu import forward as tpu_forward
from bertjax.types import Batch

PARTS = ('bytes', 'padded_bytes', 'pallas_bytes', 'copy_bytes', 'prefetch_bytes', 'stacked_bytes')
MOST = 12  # operations that are named


def check(config: Any, batch: Batch, kind: str, impl: str) -> dict[str, Any]:
  """What the compiler says of the step with an implementation of attention, or why not."""
  start, said = time.perf_counter(), dict(kind=kind, impl=impl)
  target = topology.device(kind)
  mesh = sharding.make_mesh(config.mesh, [target])
  try:
    with relative_attention.default(impl), tpu_forward.compiled_for(target.device_kind):
      compiled = topology.compile_absent(own_step.lower(config, batch, mesh)[0])
  except jax.errors.JaxRuntimeError as error:
    return said | dict(reason=topology.reason(error))
  moved = traffic.account(compiled.as_text())
  tokens = config.batch_size * config.length
  said |= topology.memory(compiled)
  said |= {f'{name}_per_token': round(getattr(moved, name) / tokens) for name in PARTS}
  said |= dict(by_operation=_largest(moved.by_operation, tokens))
  if moved.open_loops:  # they count as one turn in bytes_per_token
    said |= dict(open_loops=moved.open_loops)
  return said | dict(seconds=round(time.perf_counter() - start, 1))


def _largest(by_operation: dict[str, int], tokens: int) -> dict[str, int]:
  """The operations that move most, in bytes a token, and what all others do."""
  first = list(by_operation.items())[:MOST]
  rest = sum(by_operation.values()) - sum(moved for _, moved in first)
  return {name: round(moved / tokens) for name, moved in [*first, ('others', rest)]}
