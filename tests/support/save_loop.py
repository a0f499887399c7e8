"""A run that only saves: python save_loop.py DIRECTORY STEPS [PORT PROCESSES INDEX]

DIRECTORY is that of the checkpoints, or the URL of a workdir, of which each process has a copy.
Each state is drawn with its step as the seed, so that a mixture of two would show. Prints what it
restored and what is complete. VISIBLE_S in the environment: as `mirror.VISIBLE_S`.
"""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from bertjax.checkpoint import checkpoints as checkpoints_lib
from bertjax.machine import mirror


def main(directory: str, steps: str, port: str = '', count: str = '1', index: str = '0') -> None:
  if port:
    jax.distributed.initialize(f'localhost:{port}', int(count), int(index))
  mesh = jax.make_mesh((jax.device_count(),), ('data',), (AxisType.Auto,))
  sharding = NamedSharding(mesh, PartitionSpec('data'))
  whole = NamedSharding(mesh, PartitionSpec())
  abstract = {
    'variables': {
      f'w{i}': jax.ShapeDtypeStruct((8, 2000), np.float32, sharding=sharding if i else whole)
      for i in range(4)
    }
  }

  def draw(step):
    keys = jax.random.split(jax.random.key(step), 4)
    return {'variables': {f'w{i}': jax.random.normal(key, (8, 2000)) for i, key in enumerate(keys)}}

  draw = jax.jit(draw, out_shardings=jax.tree.map(lambda x: x.sharding, abstract))
  mirror.VISIBLE_S = float(os.environ.get('VISIBLE_S', mirror.VISIBLE_S))
  best = ConfigDict(dict(metric='none', mode='min'))
  place = mirror.Workdir(directory)
  place.fetch()
  here = pathlib.Path(place.path, 'checkpoints' if place.remote else '')
  checkpoints = checkpoints_lib.Checkpoints(here, 2, best, workdir=place)
  restored, start = checkpoints.restore(abstract), 0
  if restored is not None:
    start, state, meta = restored
    assert meta['step'] == start
    for got, expected in zip(jax.tree.leaves(state), jax.tree.leaves(draw(start)), strict=True):
      for x, y in zip(got.addressable_shards, expected.addressable_shards, strict=True):
        np.testing.assert_array_equal(np.asarray(x.data), np.asarray(y.data))
  print('restored', start, flush=True)
  for step in range(start + 1, start + 1 + int(steps)):
    checkpoints.save(step, draw(step), dict(step=step), wait=step % 3 == 0)
    if step % 3 == 0:
      print('complete', step, flush=True)
  checkpoints.close()
  print('closed', step, flush=True)


if __name__ == '__main__':
  main(*sys.argv[1:])
