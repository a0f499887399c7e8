"""What a step needs of a chip's memory, from shapes alone: seconds, where a compiler takes minutes.

The sum of what must be held at once, where it is most, in the backward pass:

  state        parameters, optimizer and batch
  gradients    float32; twice with microbatches, whose sum is held beside the newest
  residuals    what the loops over layers keep for it: read from the derivative's own jaxpr
  low          kernels in the dtype of the model, which XLA makes once for all layers
  working      logits and their exponentials; or, if that is more, a layer's widest array and the
               gradients of its kernels, in float32

All else XLA fuses, or computes again. tests/preflight/estimate_test.py compares it with a compiler.
"""

import math
from typing import Any, NamedTuple

import jax
from jax.sharding import PartitionSpec

from bertjax import sharding
from bertjax.bench import own_step
from bertjax.models.layers.basic import padded_rows
from bertjax.optim import optimizer
from bertjax.train import step as step_lib
from bertjax.types import Batch, Context

CLASSES = ('parameters', 'optimizer', 'batch', 'gradients', 'residuals', 'low', 'working')
TABLES = ('vocab', 'position', 'type', 'label')  # axes of what no layer has


class Traced(NamedTuple):
  """What the backward pass of one row keeps, in bytes.

  Attributes:
    stacked: of all layers.
    wide: the widest array of a layer, in float32.
    logits: and what is made of them.
  """

  stacked: float
  wide: float
  logits: float


def of(config: Any, batch: Batch, sizes: dict[str, int]) -> dict[str, int]:
  """`estimate` of a config, traced for it.

  Args:
    config: of a phase, `own_step.sized`.
    batch: some rows of it.
    sizes: of the mesh, axis -> devices.
  """
  system = own_step.system(config, {name: x[:1] for name, x in batch.items()})
  traced = trace(system, config.model.vocab_size, batch, rows_at_once(config, sizes))
  return estimate(config, system, batch, sizes, traced)


def estimate(
  config: Any, system: own_step.System, batch: Batch, sizes: dict[str, int], traced: Traced
) -> dict[str, int]:
  """Bytes of one chip by class, see CLASSES.

  Activations are divided along sequence. Along tensor the estimate is an upper bound: the arrays
  that it divides are counted whole.

  Args:
    config: of a phase, `own_step.sized`.
    system: of it.
    batch: some rows of it.
    sizes: of the mesh, axis -> devices.
    traced: the step with the config's remat policy.
  """
  rows = rows_at_once(config, sizes)
  boxed, tx = system.boxed, system.tx
  shapes, axes = system.variables['params'], sharding.logical_axes(boxed)['params']
  mesh = jax.sharding.AbstractMesh(tuple(sizes.values()), tuple(sizes))
  rules: Any = sharding.as_rules(config.sharding_rules)
  specs = sharding.param_specs(shapes, axes, rules, mesh)  # pyright: ignore[reportArgumentType]
  held = lambda tree, specs: _held(tree, specs, sizes)
  parameters = held(shapes, specs)
  state = held(jax.eval_shape(tx.init, shapes), optimizer.state_specs(tx, shapes, specs))
  low, per_layer = _kernels(config, shapes, axes, specs, sizes)
  row = sum(x[:1].nbytes for x in batch.values())
  columns = sizes['sequence']
  return dict(
    parameters=parameters,
    optimizer=state,
    batch=rows * config.microbatches * row,
    gradients=parameters * (2 if config.microbatches > 1 else 1),
    residuals=round(rows * traced.stacked) // columns,
    low=low,
    working=max(round(rows * traced.logits), round(rows * traced.wide) // columns + per_layer),
  )


def rows_at_once(config: Any, sizes: dict[str, int]) -> int:
  """Rows of a chip in a microbatch."""
  return config.batch_size // (sizes['data'] * sizes['fsdp'] * config.microbatches)


def trace(system: own_step.System, words: int, batch: Batch, rows: int) -> Traced:
  """Differentiates the loss of so many rows, in shapes, and looks at what is kept for it.

  Args:
    system, batch: as in `estimate`.
    words: ids of the vocabulary.
    rows: of one chip and microbatch, who decide whether the logits are held in full.
  """
  objective, variables = system.objective, system.variables
  shapes = {k: jax.ShapeDtypeStruct((rows, *x.shape[1:]), x.dtype) for k, x in batch.items()}
  carry = jax.eval_shape(objective.carry, shapes)

  def kept(params: Any, carry: Any, batch: Any) -> Any:
    ctx = Context(jax.random.key(0), jax.numpy.int32(0), train=True)

    def loss(params: Any) -> Any:
      given = dict(variables, params=params)
      terms = objective.loss(given, carry, step_lib.with_rows(batch), ctx).terms
      return step_lib.trained_loss(terms, {name: term.weight for name, term in terms.items()})

    return jax.vjp(loss, params)[1]

  jaxpr = jax.make_jaxpr(kept)(variables['params'], carry, shapes).jaxpr
  made = {out: eqn for eqn in jaxpr.eqns for out in eqn.outvars}
  found = {v: made[v] for v in jaxpr.outvars if not hasattr(v, 'val') and v in made}
  size = lambda v: math.prod(v.aval.shape) * v.aval.dtype.itemsize
  scans = {v: eqn.params['length'] for v, eqn in found.items() if eqn.primitive.name == 'scan'}
  ends = lambda v, width: v.aval.ndim and v.aval.shape[-1] == width
  is_logits = lambda v: ends(v, padded_rows(words)) and v.aval.dtype.itemsize == 4
  wide = max((4 * math.prod(v.aval.shape) / length for v, length in scans.items()), default=0)
  logits = sum(size(v) for v, eqn in found.items() if v not in scans and is_logits(v))
  return Traced(sum(map(size, scans)) / rows, wide / rows, logits / rows)


def _ways(spec: PartitionSpec, sizes: dict[str, int]) -> int:
  """How many devices divide an array."""
  axes = [axis for entry in spec for axis in ((entry,) if isinstance(entry, str) else entry or ())]
  return math.prod(sizes[axis] for axis in axes)


def _held(tree: Any, specs: Any, sizes: dict[str, int]) -> int:
  """Bytes of a tree on each device."""
  is_spec = lambda x: isinstance(x, PartitionSpec)
  ways = [_ways(spec, sizes) for spec in jax.tree.leaves(specs, is_leaf=is_spec)]
  leaves = jax.tree.leaves(tree)
  return sum(x.size * x.dtype.itemsize // n for x, n in zip(leaves, ways, strict=True))


def _kernels(config: Any, shapes: Any, axes: Any, specs: Any, sizes: dict[str, int]):
  """(bytes of the layers' kernels in the dtype of the model, where that is not their own; bytes of
  the gradients of one layer's)."""
  is_spec = lambda x: isinstance(x, PartitionSpec)
  is_axes = lambda x: isinstance(x, tuple)
  itemsize = jax.numpy.dtype(config.model.dtype).itemsize
  low = per_layer = 0
  leaves = zip(
    jax.tree.leaves(shapes), jax.tree.leaves(axes, is_leaf=is_axes),
    jax.tree.leaves(specs, is_leaf=is_spec), strict=True,
  )  # fmt: skip
  for x, names, spec in leaves:
    stacked = 'layers' in names
    if x.ndim - stacked < 2 or set(names) & set(TABLES):
      continue
    mine = x.size // _ways(spec, sizes)
    low += mine * itemsize if itemsize < 4 else 0
    per_layer += 4 * mine // (x.shape[names.index('layers')] if stacked else 1)
  return low, per_layer
