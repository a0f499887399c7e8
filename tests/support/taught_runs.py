"""Runs that learn from another: their teacher, and their first steps."""

import jax
from systems import tiny

from bertjax.sources import runs
from bertjax.train import setup


def write_teacher(workdir, store, seed, system='bert', **fields):
  """A run of a system, from its initial state, and its workdir; `fields` are of its config."""
  run = setup.make_run(tiny(system, seed=seed, **fields), str(store), jax.devices()[:1])
  params = jax.jit(lambda: run.phases[0].initial_variables(seed))()['params']
  runs.write_run(workdir, run.config, params, run.vocabulary, {})
  return workdir
