"""`config.optimizer` -> an optax chain and its schedule.

  gradients -> frozen ones to 0 -> global clip -> direction -> lr_scale -> -lr -> frozen ones to 0

The direction is AdamW's, LAMB's or Adafactor's, with weight decay: p -= lr * lr_scale * direction.
Every rule sees a stacked leaf as one tensor per layer (param_rules.py, stacked.py). What is
switched off keeps its place in the state, so phases that freeze or clip differently share it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec

from bertjax import options, sharding
from bertjax.errors import UserError, choose
from bertjax.field_types import Count, Fraction, NonNegative, Positive
from bertjax.optim import param_rules, schedules, stacked
from bertjax.types import Array

WHAT = 'config.optimizer'
Trust = Literal['decayed', 'listed', 'all']


class Common(NamedTuple):
  """The fields of `config.optimizer` that every optimizer has, besides its name.

  Attributes:
    schedule: of the learning rate, see `schedules.make`.
    clip: largest global norm of the gradients that are not frozen; 0: they are not clipped.
    freeze: patterns of the parameters that stay as they are, bit for bit.
    lr_scale, decay: ordered (pattern, multiplier) pairs that cover every parameter: of the learning
      rate, of the weight decay.
  """

  schedule: Mapping[str, Any]
  clip: NonNegative
  freeze: tuple[str, ...]
  lr_scale: param_rules.Rules
  decay: param_rules.Rules


class Leaves(NamedTuple):
  """The parameters as a direction sees them.

  Attributes:
    params: tree of arrays or shapes.
    axes: the same tree with a tuple of logical axis names at every leaf.
    decay: the same tree with the multipliers of weight decay, which broadcast against their leaf.
  """

  params: Any
  axes: Any
  decay: Any

  def per_tensor(self, tx: optax.GradientTransformation) -> optax.GradientTransformation:
    """`tx` on every tensor by itself, a stack being one tensor per layer."""
    is_stack = jax.tree.map(lambda _, axes: param_rules.is_stack(axes), self.params, self.axes)
    return stacked.per_tensor(tx, is_stack)

  def add_decay(self, weight_decay: float) -> optax.GradientTransformation:
    """u + weight_decay * decay * p."""
    rate = jax.tree.map(lambda d: np.float32(weight_decay) * d, self.decay)
    return optax.stateless(
      lambda updates, params: jax.tree.map(lambda u, p, r: u + r * p, updates, params, rate)
    )


def scale_by_raw_adam(
  b1: float, b2: float, eps: float, corrected: bool = False
) -> optax.GradientTransformation:
  """m / (sqrt(v) + eps) of the raw moments: Adam as BERT, ALBERT, ELECTRA and XLNet wrote it.

  google-research/bert, optimization.py:AdamWeightDecayOptimizer. With `corrected` the quotient is
  multiplied by sqrt(1 - b2^t) / (1 - b1^t): fairseq's adam.py, GPT-1. optax's own corrects the
  moments before it adds eps. The state is optax's, so phases of one run may differ in it.
  """

  def update(updates, state: Any, params=None):
    del params
    mu = optax.tree.update_moment(updates, state.mu, b1, 1)
    nu = optax.tree.update_moment_per_elem_norm(updates, state.nu, b2, 2)
    count = optax.safe_increment(state.count)
    scale = jnp.sqrt(1 - b2**count) / (1 - b1**count) if corrected else 1.0
    raw = jax.tree.map(lambda m, v: scale * m / (jnp.sqrt(v) + eps), mu, nu)
    return raw, optax.ScaleByAdamState(count, mu, nu)

  return optax.GradientTransformation(optax.scale_by_adam(b1, b2, eps).init, update)


def adamw(
  leaves: Leaves,
  *,
  b1: Fraction,
  b2: Fraction,
  eps: Positive,
  bias_correction: bool,
  weight_decay: NonNegative,
  eps_first: bool = False,
) -> optax.GradientTransformation:
  """m / (sqrt(v) + eps) + weight_decay * p, decay multiplied by the learning rate as the rest is.

  Args:
    leaves: the parameters.
    b1, b2, eps, weight_decay: see above.
    bias_correction: of the moments; torch.optim.AdamW with it, BERT's without.
    eps_first: add eps before the correction, as fairseq (RoBERTa, SpanBERT) and GPT-1 do. It
      is an eps of eps / sqrt(1 - b2^t): with b2 = .98, 7 times eps at first, 1% more after 200
      steps.
  """
  if eps_first and not bias_correction:
    raise UserError(f'{WHAT}.eps_first is about the bias correction, which is off; remove it')
  if bias_correction and not eps_first:
    moments = optax.scale_by_adam(b1, b2, eps)
  else:
    moments = scale_by_raw_adam(b1, b2, eps, corrected=bias_correction)
  return optax.chain(moments, leaves.add_decay(weight_decay))


def lamb(
  leaves: Leaves,
  *,
  b1: Fraction,
  b2: Fraction,
  eps: Positive,
  bias_correction: bool,
  weight_decay: NonNegative,
  trust: Trust,
  trust_rules: param_rules.Rules = (),
) -> optax.GradientTransformation:
  """adamw's direction u of every tensor times ||p|| / ||u||, or times 1 where either norm is 0.

  You et al. 2020, algorithm 2 with phi the identity. Which tensors get the ratio is `trust`:

  'decayed': those whose decay multiplier is not 0 (google-research/albert lamb_optimizer.py,
    MLPerf BERT, NVIDIA).
  'listed': those to which `trust_rules`, ordered (pattern, 0 or 1) pairs, give 1
    (tensorflow/addons lamb.py, exclude_from_layer_adaptation).
  'all': every one (optax.lamb).
  """
  where = f'{WHAT}.trust'
  choose(trust, get_args(Trust), where)
  if trust_rules and trust != 'listed':
    raise UserError(f"{where}_rules are read with {where}='listed' only, got {trust!r}; remove one")
  adam = adamw(
    leaves, b1=b1, b2=b2, eps=eps, bias_correction=bias_correction, weight_decay=weight_decay
  )
  ratio = leaves.per_tensor(optax.scale_by_trust_ratio())
  if trust == 'all':
    return optax.chain(adam, ratio)
  values = leaves.decay
  if trust == 'listed':
    values = param_rules.resolve(trust_rules, leaves.params, leaves.axes, f'{where}_rules')
  return optax.chain(adam, stacked.only(ratio, jax.tree.map(lambda v: v != 0, values)))


def adafactor(
  leaves: Leaves,
  *,
  decay_rate: Positive,
  eps: Positive,
  min_factored: Count,
  clip_rms: Positive,
  min_scale: NonNegative,
  weight_decay: NonNegative,
) -> optax.GradientTransformation:
  """g / sqrt(v) with its RMS clipped, times the RMS of the parameter, plus weight_decay * p.

  Shazeer and Stern 2018, as t5x and optax have it: no momentum, second moments with decay
  1 - t^-decay_rate over g^2 + eps, factored over the two largest axes where both have at least
  `min_factored` entries. T5: decay_rate .8, eps 1e-30, min_factored 128, clip_rms 1 and
  min_scale 1e-3.

  Args:
    leaves: the parameters.
    decay_rate, eps, min_factored: see above.
    clip_rms: largest RMS of a tensor's g / sqrt(v).
    min_scale: smallest RMS that a parameter counts as; with 0 a zero tensor stays zero.
    weight_decay: multiplied by the learning rate, unlike optax's.
  """
  direction = optax.chain(
    optax.scale_by_factored_rms(
      decay_rate=decay_rate, min_dim_size_to_factor=min_factored, epsilon=eps
    ),
    optax.clip_by_block_rms(clip_rms),
    optax.scale_by_param_block_rms(min_scale),
  )
  return optax.chain(leaves.per_tensor(direction), leaves.add_decay(weight_decay))


OPTIMIZERS = dict(adamw=adamw, lamb=lamb, adafactor=adafactor)


def make(
  config: Any, params: Any, axes: Any
) -> tuple[optax.GradientTransformation, Callable[[Any], Array]]:
  """Builds the optimizer.

  Args:
    config: `config.optimizer`: name, one of OPTIMIZERS; the keyword arguments of that function; and
      the fields of `Common`.
    params: tree of arrays or shapes.
    axes: the same tree, with a tuple of logical axis names at every leaf.

  Returns:
    The transformation, whose update needs the parameters, and the schedule.

  Raises:
    UserError: an unknown name or field, a rule that matches nothing, an uncovered parameter.
  """
  given = dict(config.items())
  known = options.named(given, OPTIMIZERS, Common, WHAT)
  fields = options.check_fields(known, given, f'{WHAT} ({config.name})')
  direction = OPTIMIZERS[config.name]
  own = options.fields_of(direction)

  schedule = schedules.make(config.schedule)
  resolve = lambda pairs, key: param_rules.resolve(pairs, params, axes, f'{WHAT}.{key}')
  leaves = Leaves(params, axes, resolve(config.decay, 'decay'))
  scales = resolve(config.lr_scale, 'lr_scale')
  frozen = jax.tree.map(lambda v: v != 0, resolve(_freeze_rules(config), 'freeze'))

  tx = optax.chain(
    _replace(frozen, 0.0),
    optax.clip_by_global_norm(config.clip) if config.clip else optax.identity(),
    direction(leaves, **{k: v for k, v in fields.items() if k in own}),
    optax.stateless(lambda updates, params: jax.tree.map(jnp.multiply, updates, scales)),
    optax.scale_by_learning_rate(schedule),
    _replace(frozen, -0.0),  # x + -0.0 is x for every x; -0.0 + 0.0 is not
  )
  return tx, schedule


def _freeze_rules(config: Any) -> param_rules.Rules:
  """1 for what is frozen, 0 for all else."""
  return (*((pattern, 1.0) for pattern in config.freeze), ('.*', 0.0))


def describe(config: Any, params: Any, axes: Any) -> str:
  """The rules of `config.optimizer` and the parameters that each decides, as a table for people.

  Args:
    config, params, axes: as in `make`, which has accepted them.

  Returns:
    A line for each rule of decay, lr_scale, freeze and trust_rules: its pattern, its value, the
    number of parameters, and which; 1 of freeze is frozen. A key that says the same of every
    parameter has one line.
  """
  rules = dict(decay=config.decay, lr_scale=config.lr_scale, freeze=_freeze_rules(config))
  if 'trust_rules' in config and config.trust_rules:
    rules['trust_rules'] = config.trust_rules
  return '\n'.join(
    param_rules.table(pairs, params, axes, f'{WHAT}.{key}') for key, pairs in rules.items()
  )


def _replace(chosen: Any, value: float) -> optax.GradientTransformation:
  """`value` where `chosen` is True."""
  swap = lambda c, u: jnp.where(c, jnp.asarray(value, u.dtype), u) if c.any() else u
  return optax.stateless(lambda updates, params: jax.tree.map(swap, chosen, updates))


def state_specs(tx: optax.GradientTransformation, params: Any, param_specs: Any) -> Any:
  """PartitionSpecs for `tx.init(params)`.

  A leaf whose path contains a parameter's is laid out like that parameter; one that lacks a single
  axis of it (Adafactor's factors) like the axes that are left, if their shape tells which these
  are. All else is replicated.

  Args:
    tx: any transformation.
    params: tree of arrays or shapes.
    param_specs: the same tree with a PartitionSpec at every leaf.
  """
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
  """The spec of a state leaf of shape `found` that belongs to a parameter of `shape` and `spec`."""
  if tuple(found) == tuple(shape):
    return spec
  axes = (*spec, *[None] * (len(shape) - len(spec)))
  without = lambda values, i: (*values[:i], *values[i + 1 :])
  fits = {without(axes, i) for i in range(len(shape)) if without(shape, i) == tuple(found)}
  return PartitionSpec(*fits.pop()) if len(fits) == 1 else PartitionSpec()
