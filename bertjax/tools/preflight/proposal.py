"""Changes that make a step fit: more microbatches, sharded parameters, fewer kept activations."""

import itertools
from typing import Any, NamedTuple

from bertjax.errors import UserError
from bertjax.models.layers.remat import KEPT
from bertjax.tools.bench.parts import own_step
from bertjax.tools.preflight import estimate as estimate_lib
from bertjax.types import Batch

FULL = 0.95  # of the memory, by an estimate that is within 10%, and mostly within 3%


class Proposal(NamedTuple):
  """Values of the config with which a step fits, and the bytes that it then needs of a chip."""

  microbatches: int
  fsdp: int
  remat: str | None
  hbm_bytes: int

  def flags(self) -> str:
    """Returns the values as flags of the command line."""
    given = [f'--config.microbatches={self.microbatches}', f'--config.mesh.fsdp={self.fsdp}']
    return ' '.join([*given, *([f'--config.model.remat={self.remat}'] if self.remat else [])])


def search(config: Any, batch: Batch, sizes: dict[str, int], limit: int) -> Proposal | None:
  """Returns the cheapest change with which a step fits so many bytes of a chip, or None.
  Microbatches cost little; shards of the parameters are gathered again in each of them; what is not
  kept is computed again, which costs most. Devices move from data to fsdp."""
  devices = sizes['data'] * sizes['fsdp']
  rows = config.batch_size // devices
  divisors = lambda n: [d for d in range(1, n + 1) if n % d == 0]
  choices = itertools.product(divisors(rows), divisors(devices))
  cheapest = lambda choice: (choice[0] * choice[1] ** 2, choice)
  ordered = sorted((c for c in choices if c[1] >= sizes['fsdp']), key=cheapest)
  ordered = [c for c in ordered if c[0] >= config.microbatches]
  for remat in policies(config):
    found = _first(config, batch, sizes, limit, remat, ordered)
    if found:
      return found
  return None


def policies(config: Any) -> list[str | None]:
  """Returns the policy of the config and those that keep less, in this order."""
  if 'remat' not in config.model:
    return [None]
  names = ['none', *KEPT]
  return [*names[names.index(config.model.remat) :]]


def _first(config, batch, sizes, limit, remat, ordered) -> Proposal | None:
  as_it_is = config.copy_and_resolve_references()
  changed = estimate_lib.with_remat(config, remat) if remat else as_it_is
  system = own_step.system(changed, batch)
  traced = None
  for microbatches, fsdp in ordered:
    changed.microbatches = microbatches
    mesh = dict(sizes, data=sizes['data'] * sizes['fsdp'] // fsdp, fsdp=fsdp)
    rows = estimate_lib.rows_at_once(changed, mesh)
    # What is kept of a row is the same for any number of them, but for how the loss is computed.
    traced = traced or estimate_lib.trace(changed, system, batch, rows)
    try:
      needed = sum(estimate_lib.estimate(changed, system, batch, mesh, traced).values())
    except UserError:  # parameters that so many devices do not divide
      continue
    if needed > FULL * limit:
      continue
    own = estimate_lib.trace(changed, system, batch, rows)
    needed = sum(estimate_lib.estimate(changed, system, batch, mesh, own).values())
    if needed <= FULL * limit:
      return Proposal(microbatches, fsdp, remat, needed)
  return None
