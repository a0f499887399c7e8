"""BERT's objective with steps that go wrong: `config.objective.name='planted'`, in tests alone.

The environment says which steps, counted from 1: PLANTED='nan:12,13 times:30'.
"""

import os

import jax.numpy as jnp

from bertjax.objectives import mlm
from bertjax.types import Factory


def steps(kind: str) -> list[int]:
  """The steps that PLANTED names for a kind."""
  given = dict(each.split(':') for each in os.environ.get('PLANTED', '').split())
  return [int(step) for step in given.get(kind, '-1').split(',')]


def make(config):
  """The objective, whose loss is not a number at some steps and 30 times as large at others."""
  plain = mlm.make(config)

  def loss(variables, carry, batch, ctx):
    is_one_of = lambda kind: (ctx.step + 1 == jnp.array(steps(kind))).any()
    factor = jnp.where(is_one_of('times'), 30.0, 1.0) if ctx.train else 1.0
    factor = jnp.where(is_one_of('nan'), jnp.nan, factor) if ctx.train else factor
    out = plain.loss(variables, carry, batch, ctx)
    terms = {k: t._replace(total=t.total * factor) for k, t in out.terms.items()}
    return out._replace(terms=terms)

  return plain._replace(loss=loss)


OBJECTIVE = Factory(mlm.Options, make, targets=mlm.targets)
