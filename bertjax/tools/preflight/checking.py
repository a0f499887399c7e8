"""The phases of a config, and what is found of each on a slice."""

import json
import sys
from typing import Any, NamedTuple

import numpy as np

from bertjax import sharding
from bertjax.config import timeline
from bertjax.errors import UserError
from bertjax.objectives import combine
from bertjax.tools.bench.parts import own_step
from bertjax.tools.bench.parts.synthetic import synthetic_batch
from bertjax.tools.preflight import compiled_step, estimate, proposal, topology
from bertjax.types import Batch

COMPILED = (
  'batch_size', 'length', 'microbatches', 'reduce_dtype', 'model', 'objective', 'optimizer'
)  # fmt: skip
WRONG = 0.1  # what an estimate may be off by
SAMPLE = 64  # rows that are made up; a larger batch repeats them


class Phase(NamedTuple):
  """One step to compile: name and config of the phase, and its number of steps in the run; None:
  the size comes from the flags."""

  name: str
  config: Any
  steps: int | None


def phases(config: Any, batch_size: int | None, length: int | None) -> list[Phase]:
  """Returns the steps to compile, the heaviest last. Phases with equal steps give one, and so do
  phases whose losses are summed. Raises UserError: one of the two sizes alone."""
  if (batch_size is None) != (length is None):
    raise UserError(
      '--batch_size and --length: expected both, or none for the phases of the config'
    )
  if batch_size is not None and length is not None:
    return [Phase('main', own_step.sized(config, batch_size, length), None)]
  found, line = {}, timeline.make(config)
  own = {p.name: own_step.sized(p.config, p.config.batch_size, p.config.length) for p in line.parts}
  whole = line.phases[0].combined
  if whole and not whole.draws:
    return [Phase('+'.join(own), own_step.side_by_side(own, whole.factors), line.total)]
  lengths = (1,) * len(own) if whole else line.lengths
  for (name, sized), lasts in zip(own.items(), lengths, strict=True):
    # What a step is compiled from: of the data what a row holds, and the rate is an argument.
    known = sized.to_dict()
    known['optimizer'].pop('schedule')
    row = [known['data'].get(name) for name in ('plan', 'mask')]
    key = json.dumps([row, *(known[name] for name in COMPILED)], default=str)
    name, sized, before = found.get(key, Phase(name, sized, 0))
    found[key] = Phase(name, sized, before + line.total * lasts // sum(lengths))
  weight = lambda phase: phase.config.batch_size * phase.config.length
  return sorted(found.values(), key=weight)


def batch_of(config: Any) -> Batch:
  """Returns a batch of made-up text; its rows repeat where there are many."""
  if each := own_step.phases_of(config):
    return combine.join({name: batch_of(c) for name, c in each.items()})
  rows = config.batch_size
  few = config.copy_and_resolve_references()
  few.batch_size = min(rows, SAMPLE)
  repeated_n = np.arange(rows) % few.batch_size
  return {name: x[repeated_n] for name, x in synthetic_batch(few).items()}


def check(
  phase: Phase, topology_name: str, impl: str | None = None, compiles: bool = True
) -> dict[str, Any]:
  """Checks whether a phase fits a slice and what its step costs. Returns JSON values: phase,
  config, topology, chips; estimate (`estimate.CLASSES`); flops_per_step of all chips; all of
  `compiled_step.check` or, if nothing is compiled, fits and hbm_bytes by the estimate and None for
  the rest; proposal, flags or None, of what does not fit; chip_hours of a recipe's phase, at the
  least. Raises UserError for no such slice, and a mesh or batch that it does not divide."""
  config, where = phase.config, topology.select(topology_name)
  limit = topology.CHIPS[where.kind].hbm_bytes
  sizes, batch = sharding.mesh_sizes(config.mesh, where.chips), batch_of(config)
  sharding.check_batch(config.batch_size, config.microbatches, sizes, where.hosts)
  with compiled_step.kernels(impl, where.kind):
    found = estimate.of(config, batch, sizes)
  flops = compiled_step.flops(config, batch)
  needed = sum(found.values())
  said: dict[str, Any] = dict(
    phase=phase.name, config=config.name, topology=topology_name, chips=where.chips,
    mesh=sizes, impl=impl or where.platform, batch_size=config.batch_size, length=config.length,
    dtype=config.model.dtype, remat=config.model.get('remat'), microbatches=config.microbatches,
    hbm_limit_bytes=limit, estimate=found, estimate_bytes=needed, fits=needed <= limit,
    hbm_bytes=needed, compiled=False, flops_per_step=flops,
    **dict.fromkeys(compiled_step.MEASURED),
  )  # fmt: skip
  if compiles and needed <= (1 + WRONG) * limit:
    with topology.in_turn(lambda line: print(line, file=sys.stderr, flush=True)):
      said |= compiled_step.check(config, batch, topology.devices(topology_name), impl, flops)
    said['compiled'] = True
  if not said['fits']:
    # What the compiler needs more than shapes say, it will need again of what is proposed.
    by_shapes = round(limit * needed / said['hbm_bytes'])
    with compiled_step.kernels(impl, where.kind):
      proposed = proposal.search(config, batch, sizes, by_shapes)
    said['proposal'] = proposed and proposed.flags()
  elif phase.steps is not None and said['compiled']:
    seconds = phase.steps * max(said['roofline'].values())
    said['chip_hours'] = round(seconds * where.chips / 3600, 1)
  return said
