"""A train step as a compiler sees it: memory, bytes, collectives, and the speed allowed."""

import contextlib
import math
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from bertjax import sharding
from bertjax.kernels import relative_attention, target
from bertjax.metrics.ledger import peak_flops
from bertjax.tools.bench.parts import own_step
from bertjax.tools.preflight import collectives as collectives_lib
from bertjax.tools.preflight import topology, traffic
from bertjax.tools.preflight.collectives import Collective
from bertjax.types import Batch

# What the compiler alone knows; None where it was not asked, or refused.
MEASURED = (
  'temporaries_bytes', 'arguments_bytes', 'bytes_per_token', 'bytes_per_token_padded', 'parts',
  'by_operation', 'collectives', 'roofline', 'mfu_bound',
)  # fmt: skip
PARTS = ('pallas', 'copy', 'prefetch', 'stacked')  # of the padded bytes
MOST = 12  # operations that are named


def flops(config: Any, batch: Batch) -> float:
  """Returns the FLOPs of a step on all chips if its rows are full; real batches may be emptier."""
  filled = lambda name, x: np.maximum(x, 1) if name.endswith('example_BT') else x
  return own_step.flops(config, {name: filled(name, x) for name, x in batch.items()})


def check(
  config: Any, batch: Batch, devices: list[Any], impl: str | None, step_flops: float
) -> dict[str, Any]:
  """Compiles the step of a phase (`own_step.sized`) for devices (`topology.devices`) that need not
  be there. Returns JSON values: fits, hbm_bytes of one chip, and if it fits all of MEASURED, per
  chip, per row token (bytes_per_token, .._padded, parts of the latter, by_operation), roofline in
  seconds a step, and mfu_bound, the share of the peak that its largest term allows. Raises
  JaxRuntimeError if the compiler refuses the step for another reason than its memory."""
  start, kind = time.perf_counter(), devices[0].device_kind
  mesh = sharding.make_mesh(config.mesh, devices)
  try:
    with kernels(impl, kind):
      compiled, text = topology.compile_to_text(own_step.lower(config, batch, mesh)[0])
  except jax.errors.JaxRuntimeError as error:
    needed = topology.needed_bytes(error)
    if needed is None:
      raise
    seconds = round(time.perf_counter() - start, 1)
    return dict(fits=False, hbm_bytes=needed, seconds=seconds)
  held = topology.memory(compiled)
  said: dict[str, Any] = dict(
    hbm_bytes=held['all_bytes'], temporaries_bytes=held['temp_bytes'],
    arguments_bytes=held['argument_bytes'],
  )  # fmt: skip
  tokens = config.batch_size * config.length / mesh.size
  moved = traffic.account(text)
  sent = collectives_lib.collectives(text, dict(mesh.shape))
  said |= dict(
    bytes_per_token=round(moved.bytes / tokens),
    bytes_per_token_padded=round(moved.padded_bytes / tokens),
    parts={part: round(getattr(moved, f'{part}_bytes') / tokens) for part in PARTS},
    by_operation=_largest(moved.by_operation, tokens),
    collectives=[c._asdict() | dict(sent_bytes=round(c.sent_bytes)) for c in sent],
  )
  if moved.open_loops:  # they count as one turn in the bytes
    said |= dict(open_loops=moved.open_loops)
  said |= _roofline(kind, step_flops / mesh.size, moved.padded_bytes, sent)
  fits = said['hbm_bytes'] <= topology.CHIPS[kind].hbm_bytes  # libtpu refuses others, XLA does not
  return dict(fits=fits, **said, seconds=round(time.perf_counter() - start, 1))


@contextlib.contextmanager
def kernels(impl: str | None, kind: str) -> Iterator[None]:
  """Attention is that of an implementation, of the kernel unless one is named, for a kind of device
  that need not be there."""
  with relative_attention.default(impl), target.compiled_for(kind):
    yield


def _roofline(kind: str, flops: float, moved: int, sent: list[Collective]) -> dict[str, Any]:
  """Seconds that a chip cannot do without, each term as if the others cost nothing."""
  chip, peak = topology.CHIPS[kind], peak_flops(kind) or math.nan
  seconds = dict(
    compute=flops / peak,
    memory=moved / chip.hbm_bytes_per_second,
    network=sum(c.sent_bytes for c in sent) / chip.ici_bytes_per_second,
  )
  bound = seconds['compute'] / max(seconds.values())
  return dict(roofline=seconds, mfu_bound=round(bound, 4))


def _largest(by_operation: dict[str, int], tokens: float) -> dict[str, int]:
  """Returns the operations that move most, in bytes a token, and what all others do."""
  first = list(by_operation.items())[:MOST]
  rest = sum(by_operation.values()) - sum(moved for _, moved in first)
  return {name: round(moved / tokens) for name, moved in [*first, ('others', rest)]}
