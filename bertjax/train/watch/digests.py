"""Values that must be equal on all processes of a run, small enough to be compared."""

import functools
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from bertjax import dotted, sharding
from bertjax.errors import UserError
from bertjax.examples import readers
from bertjax.examples.labelled.common import records
from bertjax.machine import checksums, hosts
from bertjax.store import reader, verify
from bertjax.train.watch import Step, Watcher

LIBRARIES = ('jax', 'jaxlib', 'flax', 'optax', 'orbax-checkpoint', 'numpy')
# What decides numbers, and what is compiled, and may come from the environment.
SETTINGS = (
  'jax_default_matmul_precision', 'jax_default_prng_impl', 'jax_enable_x64', 'jax_disable_jit',
  'jax_numpy_dtype_promotion', 'jax_threefry_partitionable', 'jax_debug_nans',
)  # fmt: skip
FLAGS = ('XLA_FLAGS', 'LIBTPU_INIT_ARGS')


def check_start(config: Any) -> None:
  """Refuses processes with other keys, code, libraries, devices or settings of JAX, before anything
  is computed. Raises UserError, which names process, key and both values."""
  if hosts.count() == 1:
    return
  plain = json.loads(config.copy_and_resolve_references().to_json())
  hosts.require_same('the config', dotted.flat(plain, 'config.'), 'start all with the same flags')
  versions = {name: importlib.metadata.version(name) for name in LIBRARIES}
  versions |= dict(python=platform.python_version(), bertjax=code_sha256())
  hosts.require_same('its software', versions, 'install the same on all')
  devices = {'count': jax.local_device_count(), 'kind': jax.local_devices()[0].device_kind}
  devices |= {'--processes': hosts.told_count()}
  hosts.require_same('its devices', devices, 'give every process as many, of the same kind')
  remedy = 'set the same variables in the environment of all'
  hosts.require_same('its settings of JAX and XLA', settings(os.environ), remedy)


def settings(environ: Mapping[str, str]) -> dict[str, Any]:
  """SETTINGS of JAX, and the flags of XLA but for where it is to dump what it compiles."""
  found = {name: getattr(jax.config, name) for name in SETTINGS}
  for name in FLAGS:
    found[name] = [flag for flag in environ.get(name, '').split() if 'dump' not in flag]
  return found


def check_data(run: Any) -> None:
  """Refuses processes that read other data: the store's record, `texts_sha256` and the first batch
  of each phase. Raises UserError as `check_start` does."""
  if hosts.count() == 1:
    return
  found = dict(store=checksums.digest(run.store.meta), **texts_sha256(run))
  if readers.of(run.config.data).repeats:
    found |= {f'first batch of phase {p.name!r}': p.batch_sha256(0) for p in run.phases}
  remedy = 'see that all read the same files, from the same file system or equal copies'
  hosts.require_same('its data', found, remedy)


def check_replicas(step: int, variables: Any) -> str:
  """Refuses devices that hold other values of what should be the same after a step. Returns sha256
  of the checksums of this process, for the checkpoint. Raises UserError, which names the first
  parameter that differs."""
  sums: dict[str, int] = {}
  shards = [
    (sharding.leaf_path(path), shard)
    for path, leaf in jax.tree_util.tree_leaves_with_path(variables)
    for shard in leaf.addressable_shards
  ]
  of_device = {}
  for _, shard in shards:
    of_device.setdefault(shard.device, []).append(shard.data)
  found = {device: iter(_checksums(own)) for device, own in of_device.items()}
  for name, shard in shards:
    value = int(next(found[shard.device]))
    if sums.setdefault(f'{name} {shard.index}', value) != value:
      raise UserError(f'devices of process {hosts.index()} hold other values of {_said(name)}')
  everyone = hosts.gather(f'replicas/{step}', json.dumps(sums))
  for process, text in enumerate(everyone):
    theirs = json.loads(text)
    for part in sums.keys() & theirs.keys():
      if sums[part] != theirs[part]:
        raise UserError(
          f'process {process} and process {hosts.index()} hold other values of '
          f'{_said(part.partition(" ")[0])}'
        )
  return checksums.digest(sums)


class Digests(Watcher):
  """Notes in checkpoints what was read, and refuses replicas that differ."""

  def __init__(self, run: Any):
    """Takes a `setup.Run`."""
    self._run, self._texts = run, texts_sha256(run)

  def saved(self, step: Step, state: Any) -> dict[str, Any]:
    """Name and sha256 of the last batch, the vocabulary's and those of `texts_sha256`, and that of
    the variables."""
    return dict(
      batch=step.phase.place(step.index)[:2],
      fed_sha256=hosts.gather(f'fed/{step.done}', step.phase.sha256(step.index, step.batch)),
      judged=self._texts,
      replicas_sha256=check_replicas(step.done, state.variables),
      vocabulary=self._run.store.meta['vocabulary']['sha256'],
    )


def texts_sha256(run: Any) -> dict[str, str]:
  """'held_out', or the key of a store or a labelled file in the config -> sha256 of the text that a
  `setup.Run` is judged on, or learns labels of; '' where there is none. The training text of a
  store is compared by its batches, since it may be divided into other files."""
  phases = {f'config.phases.{p.name}': p.config for p in run.parts if run.config.phases}
  found = dict(held_out=_store_sha256(run.store.path / verify.HELD_OUT))
  files, stores = {}, {}  # path -> the first key that names it: phases have those of the run, too
  for place, config in {'config': run.config, **phases}.items():
    sets = {f'{place}.evals.{name}': given for name, given in config.evals.items()}
    for key, given in {f'{place}.data': config.data, **sets}.items():
      for name in ('train', 'dev', 'file'):
        files.setdefault(given.get(name), f'{key}.{name}')
      if key in sets:
        stores.setdefault(given.get('store'), f'{key}.store')
  found |= {key: records.sha256(path) for path, key in files.items() if path}
  return found | {key: _store_sha256(pathlib.Path(path)) for path, key in stores.items() if path}


def _store_sha256(path: pathlib.Path) -> str:
  files = reader.read_meta(path)['sha256'] if path.exists() else {}
  text = {name: files[name] for name in files if name != 'store.json'}
  return checksums.digest(text) if text else ''


@functools.cache
def code_sha256() -> str:
  """sha256 of the package's sources."""
  root = pathlib.Path(__file__).resolve().parents[2]
  files = sorted(root.rglob('*.py'))
  parts = [f'{file.relative_to(root)} '.encode() + file.read_bytes() for file in files]
  return hashlib.sha256(b'\0'.join(parts)).hexdigest()


@jax.jit  # of all arrays of a device, since each call compiles
def _checksums(arrays: list[jax.Array]) -> list[jax.Array]:
  """Returns the sum of the words of each array, modulo 2^32."""
  of = lambda x: jnp.uint32 if x.dtype.itemsize == 4 else jnp.uint16
  words = [jax.lax.bitcast_convert_type(x, of(x)) for x in arrays]
  return [jnp.sum(each, dtype=jnp.uint32) for each in words]


def _said(name: str) -> str:
  return (
    f'{name}, which must be the same on both: a device or a host computes wrongly, or they do not '
    'run the same program. The last checkpoint is from before; find the faulty one, then resume'
  )
