"""LAMB: AdamW's direction with every tensor's length set to that of the tensor."""

from typing import Literal

import jax
import optax

from bertjax.config.field_types import Fraction, NonNegative, Positive
from bertjax.errors import UserError
from bertjax.optim import param_rules, stacked
from bertjax.optim.directions.adamw import adamw
from bertjax.optim.leaves import WHAT, Leaves

Trust = Literal['decayed', 'listed', 'all']


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
    values = leaves.resolve(trust_rules, 'trust_rules')
  return optax.chain(adam, stacked.only(ratio, jax.tree.map(lambda v: v != 0, values)))


DIRECTION = lamb
