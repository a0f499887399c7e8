"""Runs that learn from another: their teacher, and their first steps."""

import jax
from adopting import adopt
from systems import tiny

from bertjax.sources import runs
from bertjax.train import first_state, setup


def write_teacher(workdir, store, seed, system='bert', **fields):
  """A run of a system, from its initial state, and its workdir; `fields` are of its config."""
  run = setup.make_run(tiny(system, seed=seed, **fields), str(store), jax.devices()[:1])
  params = jax.jit(lambda: run.phases[0].initial_variables(seed))()['params']
  runs.write_run(workdir, run.config, params, run.vocabulary, {})
  return workdir


def first_losses(config, store, devices):
  config, *_ = adopt(config, 'nowhere')
  run = setup.make_run(config, str(store), devices)
  state, phase = first_state.initial_state(run, print), run.phases[0]
  phase.compile(run.abstract)
  found = []
  for index in range(3):
    state, metrics = phase.train(state, phase.next_batch(index)[0])
    found.append(float(metrics['loss']))
  return found
