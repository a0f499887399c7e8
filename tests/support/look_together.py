"""One of two processes holds NaN in the last of its devices: python look_together.py PORT INDEX

It is in a shard of an array that is divided, or in a copy of one that all devices should hold
alike. Prints what `finite.require` raises.
"""

import itertools
import sys

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from bertjax.checkpoint import finite


def main(port: str, index: str) -> None:
  jax.distributed.initialize(f'localhost:{port}', 2, int(index))
  mesh = jax.make_mesh((2, 2), ('data', 'fsdp'), (AxisType.Auto,) * 2)
  specs = dict(shard=PartitionSpec(('data', 'fsdp')), copy=PartitionSpec(), other=PartitionSpec())
  for kind, process in itertools.product(('shard', 'copy'), '01'):
    state = {}
    for name, spec in specs.items():
      parts = [np.ones(8 // 4 if name == 'shard' else 8, np.float32) for _ in jax.local_devices()]
      if (name, process) == (kind, index):
        parts[-1][-1] = np.nan
      placed = [jax.device_put(x, d) for x, d in zip(parts, jax.local_devices(), strict=True)]
      whole = NamedSharding(mesh, spec)
      state[name] = jax.make_array_from_single_device_arrays((8,), whole, placed)
    try:
      finite.require(state, f'{kind} of process {process}')
    except finite.NotFinite as error:
      print(error, flush=True)


if __name__ == '__main__':
  main(*sys.argv[1:])
