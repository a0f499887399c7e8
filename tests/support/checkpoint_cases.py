"""States to save, and ways to damage and list what was saved."""

import shutil
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from bertjax.checkpoint import manifest


class State(NamedTuple):
  step: Any
  variables: Any
  opt_state: Any
  carry: Any


def mesh_of(*shape):
  devices = jax.devices()[: int(np.prod(shape))]
  return jax.make_mesh(shape, ('a', 'b'), (AxisType.Auto,) * 2, devices=devices)


def shardings_on(mesh, state):
  spec = lambda x: PartitionSpec('a', 'b') if x.ndim == 2 else PartitionSpec()
  return jax.tree.map(lambda x: NamedSharding(mesh, spec(x)), state)


def state_of(seed: int, mesh=None) -> State:
  """A state with all that optax hands out: NamedTuples, empty states, masked nodes, counters."""
  rng = np.random.default_rng(seed)
  params = {
    'layers': {'w': jnp.asarray(rng.normal(size=(8, 16)), jnp.float32), 'b': jnp.ones(3)},
    'half': jnp.asarray(rng.normal(size=(4, 4)), jnp.bfloat16),
  }
  mask = {'layers': {'w': True, 'b': False}, 'half': True}
  tx = optax.chain(
    optax.clip_by_global_norm(1.0),
    optax.masked(optax.scale_by_adam(), mask),
    optax.add_decayed_weights(0.1, mask),
    optax.scale_by_schedule(lambda count: 0.1),
  )
  state = State(
    jnp.int32(seed), {'params': params, 'stats': {}}, tx.init(params), {'one': (), 'two': params}
  )
  return jax.device_put(state, shardings_on(mesh or mesh_of(1, 1), state))


def abstract_of(state, mesh=None):
  shardings = shardings_on(mesh or mesh_of(1, 1), state)
  return jax.tree.map(
    lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), state, shardings
  )


def assert_equal(got, expected):
  assert jax.tree.structure(got) == jax.tree.structure(expected)
  for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
    assert x.dtype == y.dtype
    np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def flip(path, where=-1):
  data = bytearray(path.read_bytes())
  data[where] ^= 1
  path.write_bytes(bytes(data))


def largest(directory):
  return max((p for p in directory.rglob('*') if p.is_file()), key=lambda p: p.stat().st_size)


def kept(directory):
  return sorted(int(p.name) for p in directory.iterdir())


def kept_names(directory):
  return sorted(p.name for p in directory.iterdir())


def spoil(directory, path, value=np.nan):
  """Puts a value into the array of a checkpoint at `path`, as a run that did not look has saved it:
  files and manifest agree."""
  with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
    item = jax.tree.map(lambda _: 0, checkpointer.metadata(directory / 'state').item_metadata.tree)
    as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), item)
    restore = ocp.args.PyTreeRestore(item=item, restore_args=as_numpy)
    state = checkpointer.restore(directory / 'state', args=restore)
    *parents, last = path.split('/')
    node = state
    for name in parents:
      node = node[int(name) if isinstance(node, list) else name]
    node[last] = np.array(node[last])
    node[last].reshape(-1)[-1] = value
    record = manifest.read(directory)
    shutil.rmtree(directory / 'state')
    checkpointer.save(directory / 'state', args=ocp.args.PyTreeSave(state))
  manifest.write(directory, {k: v for k, v in record.items() if k not in ('files', 'format')})
