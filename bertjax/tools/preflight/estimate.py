"""Memory that a step needs of a chip, from shapes: seconds of work, where a compiler takes minutes.

Three moments are reckoned, and the one at which most is held counts. At each: state (parameters,
optimizer, batch), the sum of earlier microbatches' gradients, and

  the loss   residuals: what the loops over layers, and layers before them, keep for the backward
             pass, read from the derivative's own jaxpr; the logits of all losses, float32, and the
             exponentials of one, which are made when its backward pass begins; no gradient. low:
             kernels and word tables in the dtype of the model, which XLA makes once
  a turn     the first, backwards, of a loop: residuals; gradients, for which there is room before
             they are made, but those of word tables, which come last; the logits, if they are held
             in full, until then; low, of kernels; working: what a turn takes, out of the stacks or
             computed again, its widest arrays and the gradients of its kernels, in float32
  the end    all gradients, logits and low

All else XLA fuses, or computes again. tests/tools/preflight/estimate_test.py compares it with a
compiler.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
from jax.sharding import PartitionSpec

from bertjax import sharding
from bertjax.models.layers.basic import padded_rows
from bertjax.optim import optimizer
from bertjax.tools.bench.parts import own_step
from bertjax.train import step as step_lib
from bertjax.train import touched
from bertjax.types import Batch, Context

CLASSES = ('parameters', 'optimizer', 'batch', 'gradients', 'residuals', 'low', 'logits', 'working')
WORDS = 'vocab'  # the axis of word tables
TABLES = ('position', 'type', 'label')  # axes of others, which nothing is multiplied with


class Traced(NamedTuple):
  """Bytes that the backward pass of one row keeps."""

  kept: float  # bytes of all layers
  # what the products and attention of one turn of a loop over layers make, of the loop where that
  # is most. Whether it is kept, or computed again, is the policy's.
  turn: float
  wide: float  # its widest arrays, in float32
  logits: float  # bytes of all losses' logits; 0 where none are held in full
  exps: float  # bytes of the exponentials of one loss's logits


class _Kernels(NamedTuple):
  """Bytes of what hidden states are multiplied with."""

  low: int  # in the dtype of the model, where that is not their own, without word tables
  low_words: int  # of word tables
  layer: int  # the gradients of one layer's
  words: int  # the gradients of word tables


def of(config: Any, batch: Batch, sizes: dict[str, int]) -> dict[str, int]:
  """Returns the `estimate` of a phase's config, which `own_step.sized` has completed, traced for
  it."""
  system = own_step.system(config, batch)
  traced = trace(config, system, batch, rows_at_once(config, sizes))
  return estimate(config, system, batch, sizes, traced)


def estimate(
  config: Any, system: own_step.System, batch: Batch, sizes: dict[str, int], traced: Traced
) -> dict[str, int]:
  """Returns the bytes of one chip by class (CLASSES) of a phase whose step was traced with its
  remat policy. Activations are divided along sequence, and along tensor as if all were: what passes
  between the layers, a fifth of what `light` keeps, is not."""
  rows = rows_at_once(config, sizes)
  shapes, axes, tx = system.variables['params'], system.axes['params'], system.tx
  mesh = jax.sharding.AbstractMesh(tuple(sizes.values()), tuple(sizes))
  rules: Any = sharding.as_rules(config.sharding_rules)
  specs = sharding.param_specs(shapes, axes, rules, mesh)  # pyright: ignore[reportArgumentType]
  held = lambda tree, specs: _held(tree, specs, sizes)
  parameters = held(shapes, specs)
  state = held(jax.eval_shape(tx.init, shapes), optimizer.state_specs(tx, shapes, specs))
  few = _trained(config, system, batch)
  kernels, grads = _kernels(config, few, axes, specs, sizes), held(few, specs)
  row = sum(x[:1].nbytes for x in batch.values())
  ways, words = sizes['sequence'] * sizes['tensor'], sizes['tensor']
  of_rows = lambda each: round(rows * each) // ways
  logits, low = round(rows * traced.logits) // words, kernels.low + kernels.low_words
  residuals = of_rows(traced.kept)
  summed = grads if config.microbatches > 1 else 0
  working = of_rows(traced.turn + traced.wide) + kernels.layer
  at_loss = dict(
    gradients=0,
    residuals=residuals,
    low=low,
    logits=logits + round(rows * traced.exps) // words,
    working=0,
  )
  late = kernels.words if logits else 0
  in_turn = dict(
    gradients=grads - late, residuals=residuals, low=kernels.low, logits=logits,
    working=working,
  )  # fmt: skip
  at_end = dict(gradients=grads, residuals=0, low=low, logits=logits, working=0)
  fullest = max((in_turn, at_loss, at_end), key=lambda held: sum(held.values()))
  fullest['gradients'] += summed
  found = dict(
    fullest, parameters=parameters, optimizer=state, batch=rows * config.microbatches * row
  )
  return {name: found[name] for name in CLASSES}


def _trained(config: Any, system: own_step.System, batch: Batch) -> Any:
  """Returns the shapes of what a step trains: of a table the rows that its batch touches, where the
  optimizer lets the others be."""

  def few(params: Any, batch: Batch) -> Any:
    ctx = Context(jax.random.key(0), jax.numpy.int32(0), train=True)
    return touched.taken(dict(params=params), touched.rows_of(system.objective, batch, ctx))

  params = system.variables['params']
  sparse = optimizer.sparse(config.optimizer)
  return jax.eval_shape(few, params, batch)['params'] if sparse else params


def with_remat(config: Any, remat: str) -> Any:
  """Returns the config with another policy, in all phases that a step sums."""
  changed = config.copy_and_resolve_references()
  for each in (changed, *own_step.phases_of(changed).values()):
    each.model.remat = remat
  return changed


def rows_at_once(config: Any, sizes: dict[str, int]) -> int:
  """Rows of a chip in a microbatch."""
  return config.batch_size // (sizes['data'] * sizes['fsdp'] * config.microbatches)


def trace(config: Any, system: own_step.System, batch: Batch, rows: int) -> Traced:
  """Differentiates the loss of so many rows, those of one chip and microbatch, in shapes, and looks
  at what is kept for it."""
  found = _kept(system, batch, rows)
  turn, wide = _turn(found)
  if config.model.get('remat', 'light') != 'light':
    light = own_step.system(with_remat(config, 'light'), batch)
    turn, wide = _turn(_kept(light, batch, rows))
  # So jax marks what a policy keeps; within a loop it is the loop's.
  layers = [v for v, eqn in found.items() if eqn.primitive.name in ('scan', 'reduce_precision')]
  words = padded_rows(config.model.vocab_size)
  is_logits = lambda v: v.aval.shape[-1:] == (words,) and v.aval.dtype.itemsize == 4
  exps = {v: eqn.primitive.name == 'exp' for v, eqn in found.items() if is_logits(v)}
  logits = sum(_size(v) for v, is_exp in exps.items() if not is_exp)
  most = max([0, *(_size(v) for v, is_exp in exps.items() if is_exp)])
  return Traced(
    sum(map(_size, layers)) / rows, turn / rows, wide / rows, logits / rows, most / rows
  )


def _kept(system: own_step.System, batch: Batch, rows: int) -> dict[Any, Any]:
  """Returns variable -> equation, for the arrays that the backward pass of so many rows keeps."""
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
  return {v: made[v] for v in jaxpr.outvars if not hasattr(v, 'val') and v in made}


def _size(v: Any) -> int:
  """Bytes of a value of a jaxpr."""
  return math.prod(v.aval.shape) * v.aval.dtype.itemsize


def _turn(found: Mapping[Any, Any]) -> tuple[float, float]:
  """Returns the bytes of one turn of the largest loop, and of its widest arrays in float32."""
  loops: dict[int, list[tuple[float, int]]] = {}
  for v, eqn in found.items():
    if eqn.primitive.name == 'scan':
      one = _size(v) / eqn.params['length'], math.prod(v.aval.shape[1:])
      loops.setdefault(id(eqn), []).append(one)
  taken = lambda loop: sum(size for size, _ in loop)
  largest = max(loops.values(), key=taken, default=[(0.0, 0)])
  widest = max(elements for _, elements in largest)
  return taken(largest), 4.0 * sum(n for _, n in largest if n == widest)


def _ways(spec: PartitionSpec, sizes: dict[str, int]) -> int:
  """Returns the number of devices that an array is split over."""
  axes = [axis for entry in spec for axis in ((entry,) if isinstance(entry, str) else entry or ())]
  return math.prod(sizes[axis] for axis in axes)


def _held(tree: Any, specs: Any, sizes: dict[str, int]) -> int:
  """Bytes of a tree on each device."""
  each = lambda x, spec: x.size * x.dtype.itemsize // _ways(spec, sizes)
  return sum(jax.tree.leaves(jax.tree.map(each, tree, specs)))


def _kernels(config: Any, shapes: Any, axes: Any, specs: Any, sizes: dict[str, int]) -> _Kernels:
  itemsize = jax.numpy.dtype(config.model.dtype).itemsize
  low = low_words = layer = words = 0
  leaves, tree = jax.tree.flatten(shapes)
  beside = tree.flatten_up_to(axes), tree.flatten_up_to(specs)
  for x, names, spec in zip(leaves, *beside, strict=True):
    stacked = 'layers' in names
    if x.ndim - stacked < 2 or set(names) & set(TABLES):
      continue
    mine = x.size // _ways(spec, sizes)
    cast = mine * itemsize if itemsize < 4 else 0
    if WORDS in names:
      low_words, words = low_words + cast, words + 4 * mine
    else:
      low += cast
      layer += 4 * mine // (x.shape[names.index('layers')] if stacked else 1)
  return _Kernels(low, low_words, layer, words)
