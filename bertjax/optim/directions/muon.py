"""Muon: every matrix moves along its momentum with equal singular values; AdamW for the rest."""

import math
from typing import Any

import jax
import optax
from optax.contrib import MuonDimensionNumbers, scale_by_muon

from bertjax import sharding
from bertjax.errors import UserError
from bertjax.field_types import Count, Fraction, NonNegative, Positive
from bertjax.optim import param_rules
from bertjax.optim.leaves import HEADS, WHAT, Leaves


def muon(
  leaves: Leaves,
  *,
  matrices: param_rules.Rules,
  momentum: Fraction,
  nesterov: bool,
  newton_schulz_steps: Count,
  update_rms: NonNegative,
  b1: Fraction = 0.9,
  b2: Fraction,
  eps: Positive,
  weight_decay: NonNegative,
) -> optax.GradientTransformation:
  """Newton-Schulz of the momentum for matrices, corrected Adam for all else; + weight_decay * p.

  Jordan et al. 2024, as `optax.contrib.muon` has it, with its three coefficients. Its momentum is
  corrected for its start (Dozat's Nesterov moments), which Jordan's program leaves out: the blend
  of momentum and gradient differs in the first steps. A matrix is a kernel as its product sees it,
  inputs x outputs: queries [D, N, H] are D x NH, the output of attention [N, H, D] is NH x D, and a
  stack is one matrix per layer.

  Args:
    matrices: ordered (pattern, 0 or 1) pairs that cover every parameter; 1: it is a matrix for
      Muon. Customary are the kernels of the layers, not embeddings and heads.
    momentum, nesterov: of the matrices.
    newton_schulz_steps: 5 bring singular values above .3% of the norm between .68 and 1.21.
    update_rms: root mean square, about, of the entries of a matrix's update; with .2, that of
      Adam's updates, both share one learning rate and decay (Liu et al. 2025). 0: the update is
      multiplied by sqrt(max(1, outputs / inputs)) instead, as Jordan's, and `lr_scale` gives
      matrices and the rest rates of their own.
    b1, b2, eps: of Adam.
    weight_decay: of both.
  """
  numbers = _dimension_numbers(leaves, matrices)
  kind = lambda _, n: 'muon' if isinstance(n, MuonDimensionNumbers) else 'adam'
  kinds = jax.tree.map(kind, leaves.params, numbers)
  orthogonal = scale_by_muon(
    ns_steps=newton_schulz_steps, beta=momentum, nesterov=nesterov, weight_dimension_numbers=numbers
  )
  factors = lambda updates, _: jax.tree.map(
    lambda u, n: _factor(u.shape, n, update_rms) * u, updates, numbers
  )
  directions: Any = dict(
    muon=optax.chain(orthogonal, optax.stateless(factors)), adam=optax.scale_by_adam(b1, b2, eps)
  )
  return optax.chain(optax.partition(directions, kinds), leaves.add_decay(weight_decay))


def _dimension_numbers(leaves: Leaves, matrices: param_rules.Rules) -> Any:
  """Returns the inputs and outputs of every matrix; `optax.MaskedNode` in the place of all else.
  Raises UserError if the rules take what is no matrix, or some layers of a stack without the
  others."""

  def numbers(path, leaf, axes: tuple, chosen) -> Any:
    if not chosen.any():
      return optax.MaskedNode()
    name, key = sharding.leaf_path(path), f'{WHAT}.matrices'
    if not chosen.all():
      raise UserError(
        f'{key} takes some layers of {name} and not all: expected one value for all layers of a '
        'stack, since they share their state; name the parameter without the number of its layer'
      )
    first = 1 if param_rules.is_stack(axes) else 0
    halves = _halves(axes[first:])
    if halves is None:
      raise UserError(
        f'{key} takes {name} with the logical axes {axes}: expected a matrix, which has one axis '
        '(or heads and head) in and one out; give it 0'
      )
    cut = first + halves
    return MuonDimensionNumbers(tuple(range(first, cut)), tuple(range(cut, len(axes))))

  chosen = leaves.resolve(matrices, 'matrices')
  return jax.tree_util.tree_map_with_path(numbers, leaves.params, leaves.axes, chosen)


def _halves(axes: tuple) -> int | None:
  """Returns the number of logical axes that are a matrix's inputs; None if it is no matrix."""
  inputs = 2 if axes[:2] == HEADS else 1
  outputs = axes[inputs:]
  return inputs if len(outputs) == 1 or outputs == HEADS else None


def _factor(shape: tuple[int, ...], numbers: MuonDimensionNumbers, rms: float) -> float:
  inputs, outputs = (math.prod(shape[axis] for axis in axes) for axes in numbers)  # pyright: ignore
  return rms * math.sqrt(max(inputs, outputs)) if rms else math.sqrt(max(1, outputs / inputs))


DIRECTION = muon
