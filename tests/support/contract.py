"""What every run must keep, whatever it learns: its first steps, and what is checked of them."""

import copy
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from bertjax.checkpoint import checkpoints as checkpoints_lib
from bertjax.train import first_state, setup
from bertjax.train import step as step_lib
from bertjax.train.phase import Phase
from bertjax.types import Context

STEPS = 3
MIXED = {'mesh.data': 2, 'mesh.fsdp': 2, 'mesh.tensor': 2}
REPLICAS = {'mesh.data': 2, 'mesh.fsdp': 2}  # which XLA divides further, see sharding.replicas


class Reference(NamedTuple):
  """A config's first steps on one device."""

  config: ConfigDict  # as it was given
  path: Any  # what its reader opens
  losses: np.ndarray  # of the steps
  # run, state: after them
  run: setup.Run
  state: step_lib.State


def steps_of(config: ConfigDict, path, devices: int = 1, steps: int = STEPS) -> Reference:
  """The first steps from the seed, on so many devices."""
  run = setup.make_run(config, path, jax.devices()[:devices])
  state, phase = first_state.initial_state(run), run.phases[0]
  found = []
  for index in range(steps):  # the compiled step refuses a state that came back otherwise
    batch, _ = phase.next_batch(index)
    if not phase.takes(batch):
      phase.compile(run.abstract, batch)
    state, metrics = phase.train(state, batch)
    found.append(float(metrics['loss']))
  return Reference(config, path, np.array(found), run, state)


def check_moves(reference: Reference) -> None:
  """The loss is finite and moves."""
  assert np.isfinite(reference.losses).all() and len(set(reference.losses)) == STEPS


def check_agrees(reference: Reference, fields: dict, rtol: float = 2e-6) -> None:
  """Other meshes and microbatches come to the same losses."""
  config = copy.deepcopy(reference.config)
  config.update_from_flattened_dict(fields)
  devices = math.prod(size for key, size in fields.items() if key.startswith('mesh.'))
  many = steps_of(config, reference.path, devices)
  np.testing.assert_allclose(many.losses, reference.losses, rtol=rtol)


def zeros_of(phase: Phase, tree) -> set[str]:
  """The parameters, layer by layer, that are all zero in a tree like them."""
  batch = step_lib.with_rows(phase.template)
  stacked = jax.tree.map(
    lambda box: getattr(box, 'names', ())[:1] == ('layers',),
    jax.eval_shape(phase.objective.init, jax.random.key(0), batch)['params'],
    is_leaf=lambda x: isinstance(x, nn.LogicallyPartitioned),
  )
  return {
    f'{jax.tree_util.keystr(path, simple=True, separator="/")}, layer {layer}'
    for (path, leaf), is_stack in zip(
      jax.tree_util.tree_leaves_with_path(tree), jax.tree.leaves(stacked), strict=True
    )
    for layer, part in enumerate(np.asarray(leaf) if is_stack else np.asarray(leaf)[None])
    if not np.abs(part).max() > 0
  }


def gradient(phase: Phase, state) -> dict:
  """Of a phase's first batch, like the parameters."""
  batch, carry = step_lib.with_rows(phase.next_batch(0)[0]), state.carry[phase.name]
  ctx = Context(jax.random.key(0), jnp.int32(0), True)
  loss = lambda v: step_lib.accumulate(phase.objective, v, carry, batch, ctx, 1)[0]
  return jax.jit(loss)(state.variables)


def without_gradient(reference: Reference) -> set[str]:
  """The parameters, layer by layer, that got no gradient in any phase: some phases train a part of
  the model."""
  first, *others = reference.run.phases
  # The mean of the first steps' gradients, which the optimizer keeps.
  taught = optax.tree.get(reference.state.opt_state, 'mu')
  if taught is None:  # Adafactor keeps none: it moves what has a gradient, and nothing else
    began = first_state.initial_state(reference.run).variables['params']
    taught = jax.tree.map(lambda a, b: a - b, reference.state.variables['params'], began)
  missing = zeros_of(first, taught)
  for phase in others:
    missing = missing and missing & zeros_of(phase, gradient(phase, reference.state))
  return missing


def check_learns(reference: Reference, untaught: Sequence[str] = ()) -> None:
  """Every parameter of every layer got a gradient but those that begin so, some of which got none
  each."""
  missing = without_gradient(reference)
  other = sorted(name for name in missing if not name.startswith(tuple(untaught)))
  assert not other, other
  assert all(any(name.startswith(each) for name in missing) for each in untaught), missing


def check_resume(reference: Reference, workdir) -> None:
  """A state that was saved and restored takes the next step to the same bits."""
  config, run, phase = reference.config, reference.run, reference.run.phases[0]
  last, index = run.at(STEPS)
  state = jax.tree.map(jnp.copy, reference.state)  # the step takes it
  kept = checkpoints_lib.Checkpoints(workdir, 1, config.best)
  meta = dict(fed_sha256=last.batch_sha256(index))
  kept.save(STEPS, first_state.saved(run, state), meta, wait=True)
  straight, _ = phase.train(state, phase.next_batch(STEPS)[0])
  done, restored, meta = kept.restore(first_state.saved(run, run.abstract))
  kept.close()
  first_state.check_last_batch(run, meta, done)
  again = setup.make_run(config, reference.path, jax.devices()[:1]).phases[0].next_batch(STEPS)[0]
  resumed, _ = phase.train(first_state.restored(run, restored), again)
  jax.tree.map(np.testing.assert_array_equal, resumed, straight)
