"""The state of a run as shapes with shardings, before any of it is there."""

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import PartitionSpec

from bertjax import sharding
from bertjax.checkpoint import reading
from bertjax.errors import UserError
from bertjax.optim import optimizer
from bertjax.train.phase import Phase
from bertjax.train.step import State
from bertjax.types import Batch, Objective


def variables_of(objective: Objective, batch: Batch) -> tuple[Any, Any]:
  """Returns the shapes of the variables for rows like those of a batch, and their logical axes."""
  row = {k: jax.ShapeDtypeStruct((1, *v.shape[1:]), v.dtype) for k, v in batch.items()}
  boxed = jax.eval_shape(objective.init, jax.random.key(0), row)
  return nn.meta.unbox(boxed), sharding.logical_axes(boxed)


def make(parts: Sequence[Phase], phases: Sequence[Phase], devices: sharding.Devices) -> State:
  """Returns the state of a run as shapes: `parts` are the phases of its config, `phases` those that
  run, each with a carry. UserError: parts that do not share variables and optimizer state."""
  states, specs = [], []
  for phase in parts:
    variables, axes = variables_of(phase.objective, phase.template)
    variable_specs = sharding.param_specs(variables, axes, devices.rules, devices.mesh)
    states.append((variables, jax.eval_shape(phase.tx.init, variables['params'])))
    _check_shared(parts[0].name, states[0], phase.name, states[-1])
    opt_specs = optimizer.state_specs(phase.tx, variables['params'], variable_specs['params'])
    specs.append((variable_specs, opt_specs))
  carries = {p.name: jax.eval_shape(p.objective.carry, p.template) for p in phases}
  carry_specs = jax.tree.map(lambda _: sharding.batch_spec(), carries)
  step = jax.ShapeDtypeStruct((), np.int32)
  (variables, opt_state), (variable_specs, opt_specs) = states[0], specs[0]
  abstract = State(step, variables, opt_state, carries)
  specs = State(PartitionSpec(), variable_specs, opt_specs, carry_specs)
  return sharding.placed(abstract, specs, devices.mesh)


def _check_shared(first: str, expected: Any, name: str, got: Any) -> None:
  """Refuses a phase whose parameters or optimizer state are not those of the first phase."""
  theirs, ours = map(reading.describe, (expected, got))
  differing = [k for k in sorted({*theirs, *ours}) if theirs.get(k) != ours.get(k)]
  if differing or jax.tree.structure(expected) != jax.tree.structure(got):
    leaf = differing[0] if differing else 'the kind of optimizer state'
    raise UserError(
      f'phase {name!r} has other parameters or optimizer state than phase {first!r}, for one '
      f'{leaf}: expected {theirs.get(leaf, "none")}, got {ours.get(leaf, "none")}. Phases of one '
      'run must share both: give them the same config.model sizes and config.optimizer.name'
    )
