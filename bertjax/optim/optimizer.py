"""`config.optimizer` -> an optax chain and its schedule.

  gradients -> frozen ones to 0 -> global clip -> direction -> lr_scale * layer_decay -> -rate
  -> frozen ones to 0 -> the mean of the parameters, where it is asked for (averaging.py)

The direction is that of a module of `directions/`, with weight decay: p -= lr * lr_scale *
direction. Every rule sees a stacked leaf as one tensor per layer (param_rules.py, leaves.py). What
is switched off keeps its place in the state, so phases that freeze or clip differently share it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec

from bertjax import options, registry, sharding
from bertjax.errors import UserError
from bertjax.field_types import Natural, NonNegative, PositiveShare
from bertjax.optim import averaging, layer_decay, param_rules, schedules
from bertjax.optim.leaves import WHAT, Leaves
from bertjax.types import Array

DIRECTIONS = 'bertjax.optim.directions'


class Common(NamedTuple):
  """The fields of `config.optimizer` that every optimizer has, besides its name.

  Attributes:
    schedule: of the learning rate, see `schedules.make`.
    clip: largest global norm of the gradients that are not frozen; 0: they are not clipped.
    clip_apart: patterns of the parameters whose gradients have such a norm of their own.
    freeze: patterns of the parameters that stay as they are, bit for bit.
    lr_scale, decay: ordered (pattern, multiplier) pairs that cover every parameter: of the learning
      rate, of the weight decay.
    average: from the evaluation on whose config.best.metric is worse than the best one of more than
      so many evaluations before it, the parameters are averaged and the mean is judged (NT-ASGD,
      awd-lstm-lm: 5); 0: never.
  """

  schedule: Mapping[str, Any]
  decay: param_rules.Rules
  clip: NonNegative = 0.0
  clip_apart: tuple[str, ...] = ()
  freeze: tuple[str, ...] = ()
  lr_scale: param_rules.Rules = ((r'.*', 1.0),)
  layer_decay: PositiveShare = 1.0
  average: Natural = 0


def sparse(given: Mapping[str, Any]) -> bool:
  """Returns whether a `config.optimizer` leaves entries whose gradient is 0 as they are, and its
  state of them."""
  fields = _read(given)
  module = registry.find(DIRECTIONS, given['name'], f'{WHAT}.name')
  return getattr(module, 'SPARSE', False) and not fields['weight_decay'] and not fields['average']


def direction_of(given: Mapping[str, Any]) -> Callable[..., optax.GradientTransformation]:
  """Returns the direction that a `config.optimizer` names: of `Leaves` and its own fields as
  keywords. Raises UserError: no name, or none of the modules of `directions/`."""
  if 'name' not in given:
    names = ', '.join(registry.names_in(DIRECTIONS))
    raise UserError(f'{WHAT} lacks name: expected one of {names}')
  return registry.chosen(DIRECTIONS, given['name'], f'{WHAT}.name')


def fields_of(given: Mapping[str, Any]) -> dict[str, options.Field]:
  """Returns the fields of a `config.optimizer`: its direction's, those of `Common`, and the name.
  Raises UserError as `direction_of` does."""
  own = options.fields_of(direction_of(given))
  return own | options.fields_of(Common) | {'name': options.Field(str, True, '')}


def make(
  config: Any, params: Any, axes: Any
) -> tuple[optax.GradientTransformationExtraArgs, Callable[[Any], Array]]:
  """Builds the optimizer of a `config.optimizer`. The rate is an argument of each update, so that
  runs with other schedules share what is compiled. Returns the transformation, whose update needs
  the parameters and `rate`, and the schedule, which has the rate of each step. Raises UserError: an
  unknown name or field, a rule that matches nothing, an uncovered parameter. Parameters may be
  shapes; every leaf of axes is a tuple of logical axis names."""
  fields = _read(config)
  direction = direction_of(config)
  own = options.fields_of(direction)

  schedule = schedules.make(config.schedule)
  rules = _rules(fields, params, axes)
  if fields['clip_apart'] and not fields['clip']:
    raise UserError(
      f'{WHAT}.clip_apart={fields["clip_apart"]!r} says what is clipped apart: expected '
      f'{WHAT}.clip above 0, got {fields["clip"]}; with 0 set clip_apart=() too'
    )
  decay = param_rules.resolve(rules['decay'], params, axes, f'{WHAT}.decay')
  leaves = Leaves(params, axes, decay)
  scales = leaves.resolve(rules['lr_scale'], 'lr_scale')
  if 'layer_decay' in rules:
    by_depth = leaves.resolve(rules['layer_decay'], 'layer_decay')
    scales = jax.tree.map(np.multiply, scales, by_depth)
  frozen = jax.tree.map(lambda v: v != 0, leaves.resolve(rules['freeze'], 'freeze'))

  tx = optax.chain(
    _replace(frozen, 0.0),
    _clip(fields['clip'], rules.get('clip_apart'), leaves) if fields['clip'] else optax.identity(),
    direction(leaves, **{k: v for k, v in fields.items() if k in own}),
    optax.stateless(lambda updates, params: jax.tree.map(jnp.multiply, updates, scales)),
    _descend(),
    _replace(frozen, -0.0),  # x + -0.0 is x for every x; -0.0 + 0.0 is not
    *([averaging.average()] if fields['average'] else []),
  )
  return tx, schedule


def _read(config: Any) -> dict[str, Any]:
  given = dict(config.items())
  return options.check_fields(fields_of(given), given, f'{WHAT} ({given.get("name")})')


def _rules(fields: Mapping[str, Any], params: Any, axes: Any) -> dict[str, param_rules.Rules]:
  """Returns the rules by key; layer_decay only where it is not 1, and clip_apart where it is given;
  of freeze 1 is frozen."""
  found = dict(decay=fields['decay'], lr_scale=fields['lr_scale'], freeze=_of(fields['freeze']))
  found |= dict(clip_apart=_of(fields['clip_apart'])) if fields['clip_apart'] else {}
  by_depth = layer_decay.rules(fields['layer_decay'], params, axes, f'{WHAT}.layer_decay')
  return found | (dict(layer_decay=by_depth) if by_depth else {})


def _of(patterns: Sequence[str]) -> param_rules.Rules:
  """Returns the rules by which what one of the patterns matches is 1, and all else 0."""
  return (*((pattern, 1.0) for pattern in patterns), ('.*', 0.0))


def _clip(
  largest: float, rules: param_rules.Rules | None, leaves: Leaves
) -> optax.GradientTransformation:
  """Clips by the global norm; with rules by that of what they say 1 of, and that of all else.
  Gradients are multiplied by one number, as in TensorFlow and PyTorch, where optax divides each by
  the norm: XLA on CPUs writes the quotients to memory (LOG.md)."""
  apart = leaves.resolve(rules, 'clip_apart') if rules else None

  def factor(updates: Any) -> Array:
    return jnp.minimum(1.0, largest / optax.tree.norm(updates))

  def update(updates: Any, params: Any) -> Any:
    if apart is None:
      by = factor(updates)
      return jax.tree.map(lambda u: u * by.astype(u.dtype), updates)
    of = lambda group: jax.tree.map(lambda a, u: jnp.where(a == group, u, 0), apart, updates)
    rest, chosen = factor(of(0.0)), factor(of(1.0))
    clipped = lambda a, u: u * jnp.where(a == 1.0, chosen, rest).astype(u.dtype)
    return jax.tree.map(clipped, apart, updates)

  return optax.stateless(update)


def describe(config: Any, params: Any, axes: Any) -> str:
  """Returns the rules of `config.optimizer`, which `make` has accepted, and the parameters that
  each decides, as a table for people: a line for each rule of decay, lr_scale, freeze, layer_decay
  and the direction's own (Muon's matrices): its pattern, its value, the number of parameters, and
  which; 1 of freeze is frozen. A key that says the same of every parameter has one line."""
  fields = _read(config)
  rules = _rules(fields, params, axes)
  for key, field in options.fields_of(direction_of(config)).items():
    if field.kind == param_rules.Rules and fields[key]:
      rules[key] = fields[key]
  return '\n'.join(
    param_rules.table(pairs, params, axes, f'{WHAT}.{key}') for key, pairs in rules.items()
  )


def _descend() -> optax.GradientTransformationExtraArgs:
  """-rate times the updates; `rate` is an argument of the update."""

  def update(updates, state, params=None, *, rate, **others):
    return jax.tree.map(lambda u: jnp.asarray(-rate, u.dtype) * u, updates), state

  # optax declares the update of a transformation without further arguments.
  return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)  # pyright: ignore[reportArgumentType]


def _replace(chosen: Any, value: float) -> optax.GradientTransformation:
  """`value` where `chosen` is True."""
  swap = lambda c, u: jnp.where(c, jnp.asarray(value, u.dtype), u) if c.any() else u
  return optax.stateless(lambda updates, params: jax.tree.map(swap, chosen, updates))


def state_specs(tx: optax.GradientTransformation, params: Any, param_specs: Any) -> Any:
  """Returns PartitionSpecs for `tx.init(params)`. A leaf whose path contains a parameter's is laid
  out like that parameter; one that lacks a single axis of it (Adafactor's factors) like the axes
  that are left, if their shape tells which these are. All else is replicated."""
  leaves, treedef = jax.tree_util.tree_flatten_with_path(params)
  known = {
    tuple(sharding.leaf_path(path).split('/')): (leaf.shape, spec)
    for (path, leaf), spec in zip(leaves, treedef.flatten_up_to(param_specs), strict=True)
  }

  def spec_of(path, leaf) -> PartitionSpec:
    parts = tuple(sharding.leaf_path(path).split('/'))
    sizes = range(len(parts), 0, -1)  # the longest path first: 'norm/scale' ends 'mlm/norm/scale'
    windows = (parts[i : i + n] for n in sizes for i in range(len(parts) - n + 1))
    shape, spec = next((known[w] for w in windows if w in known), ((), PartitionSpec()))
    return _matching_spec(leaf.shape, shape, spec)

  return jax.tree_util.tree_map_with_path(spec_of, jax.eval_shape(tx.init, params))


def _matching_spec(found: Sequence[int], shape: Sequence[int], spec: PartitionSpec):
  """Returns the spec of a state's leaf of shape `found`, of a parameter of `shape` and `spec`."""
  if tuple(found) == tuple(shape):
    return spec
  axes = (*spec, *[None] * (len(shape) - len(spec)))
  without = lambda values, i: (*values[:i], *values[i + 1 :])
  fits = {without(axes, i) for i in range(len(shape)) if without(shape, i) == tuple(found)}
  return PartitionSpec(*fits.pop()) if len(fits) == 1 else PartitionSpec()
