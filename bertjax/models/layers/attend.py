"""The mask of a packed example, by `config.model.attend`: which tokens see each other."""

from collections.abc import Iterable
from typing import Literal

import jax
import jax.numpy as jnp

from bertjax.errors import UserError
from bertjax.kernels.relative_attention import Mask
from bertjax.models.layers.block import Context
from bertjax.types import Batch

Attend = Literal['example', 'causal', 'self', 'language']


def example_mask(batch: Batch, attend: str) -> Mask:
  """Returns the mask of `attend`, see `bert.Base`; 'anticausal' is causal from the right."""
  example_BT = batch['example_BT']
  column_BT = jnp.broadcast_to(jnp.arange(1, example_BT.shape[1] + 1), example_BT.shape)
  if attend == 'self':
    example_BT = jnp.where(example_BT > 0, column_BT, 0)
  if attend == 'language':
    if 'language_BT' not in batch:
      raise UserError(
        "config.model.attend='language' needs language ids: take a plan and a store that know them"
      )
    example_BT = jnp.where(example_BT > 0, (example_BT << 8) + batch['language_BT'], 0)
  if attend == 'causal':
    return Mask(example_BT, example_BT, causal=True)
  if attend == 'anticausal':
    return Mask(example_BT, example_BT, -column_BT, -column_BT - 1)
  return Mask(example_BT, example_BT)


def named_tables(extra: Iterable[tuple[str, int]], attend: str) -> tuple[str, ...]:
  """Names of further tables of ids, and of the languages where they decide who sees whom."""
  languages = ['language'] if attend == 'language' else []
  return tuple(dict.fromkeys([*(name for name, _ in extra), *languages]))


def second_text(batch: Batch, read_BSD: jax.Array, bias_NR: jax.Array | None = None) -> Context:
  """Returns the context of a decoder's layers: each column of the second text, out_example_BU, sees
  those before it, and all of the first text of its own example, of which read_BSD is what the
  encoder makes; bias_NR is as in `Context`."""
  mine_BU, theirs_BT = batch['out_example_BU'], batch['example_BT']
  mask, other = Mask(mine_BU, mine_BU, causal=True), Mask(mine_BU, theirs_BT)
  return Context(mask, bias_NR=bias_NR, other_BSD=read_BSD, other_mask=other)
