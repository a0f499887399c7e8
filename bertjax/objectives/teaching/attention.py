"""Attention of student and teacher: products of queries, keys and values, compared by token."""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from bertjax.errors import UserError
from bertjax.models.layers import flops as flops_lib
from bertjax.objectives.teaching import KEY, by_columns
from bertjax.types import Array, Batch


def scores(one_BTNH: Array, other_BSNH: Array, sees_BTS: Array, unseen: float) -> Array:
  """Products over sqrt(H), float32 [B, N, T, S]; `unseen` where t does not see s."""
  product_BNTS = jnp.einsum(
    'BTNH,BSNH->BNTS', one_BTNH, other_BSNH, preferred_element_type=jnp.float32
  )
  scaled_BNTS = product_BNTS / math.sqrt(one_BTNH.shape[-1])
  return jnp.where(sees_BTS[:, None], scaled_BNTS, unseen)


def compared(
  error: Callable[[Array, Array], Array],
  teacher: tuple[Array, Array],
  student: tuple[Array, Array],
  example_BT: Array,
  unseen: float,
) -> Array:
  """Returns an error of the scores of each token, the mean over heads: float32 [B, T].

  Args:
    error: (the teacher's scores, the student's) [B, N, T, S] -> [B, N, T].
    teacher, student: two of query, key and value, [B, T, N, H]; N must agree.
    example_BT: equal ids see each other; padding sees itself, and is for others to leave out.
    unseen: as of `scores`.
  """
  (wanted_BTNH, wanted_BSNH), (found_BTNH, found_BSNH) = teacher, student

  def part(wanted_BTNH: Array, found_BTNH: Array, own_BT: Array) -> Array:
    sees_BTS = own_BT[:, :, None] == example_BT[:, None]
    wanted_BNTS = scores(wanted_BTNH, wanted_BSNH, sees_BTS, unseen)
    return jnp.mean(error(wanted_BNTS, scores(found_BTNH, found_BSNH, sees_BTS, unseen)), 1)

  each = wanted_BTNH.shape[2] * example_BT.shape[1]
  return by_columns(part, (wanted_BTNH, found_BTNH, example_BT), each)


def flops(batch: Batch, student: Any, teacher: Any) -> float:
  """FLOPs of the scores of a layer of two models; the teacher's have no backward pass."""
  return flops_lib.attended_pairs(batch['example_BT']) * (6.0 * student.width + 2.0 * teacher.width)


def check(config: Any) -> None:
  """Refuses models whose layers share their attention or do not see whole examples."""
  given = {'config.model': config.model, f'{KEY}.teacher.model': config.objective.teacher.model}
  for name, model in given.items():
    for key, expected in (('sharing', 'none'), ('attend', 'example')):
      if key in model and model[key] != expected:
        raise UserError(
          'what is compared is the attention of whole examples in layers of their own: expected '
          f'{name}.{key}={expected!r}, got {model[key]!r}'
        )
