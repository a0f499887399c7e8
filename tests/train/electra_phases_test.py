"""ELECTRA in two stages: the copy between them, what is frozen in each, a resume there."""

import jax
import numpy as np
import pytest
from mutation import mutation

from bertjax.checkpoint import checkpoints as checkpoints_lib
from bertjax.train import first_state, setup
from configs import electra_two_stage

mutation(
  "params['embeddings'] = params.get('generator_embeddings', params['embeddings'])",
  "params['embeddings'] = params['embeddings']",
)
mutation('optimizer=dict(freeze=GENERATOR,', 'optimizer=dict(freeze=DISCRIMINATOR[:0],')

GENERATOR, JUDGE = ('generator_net', 'generator_embeddings', 'mlm'), ('discriminator', 'embeddings')


def config():
  c = electra_two_stage.get_config('test')
  c.batch_size, c.length, c.total_steps, c.evals.held_out.batch_size = 4, 32, 4, 4
  c.optimizer.schedule.peak = 1e-2
  return c


def advance(run, state, first, last):
  """The state after steps first + 1 .. last, as the loop takes them."""
  for done in range(first, last):
    number, index = run.timeline.at(done)
    phase = run.phases[number]
    if not phase.takes(phase.template):
      phase.compile(run.abstract)
    if index == 0:
      state = phase.enter(state)
    state, _ = phase.train(state, phase.next_batch(index)[0])
  return state


def same(one, other, parts) -> bool:
  take = lambda params: jax.tree.leaves([params[part] for part in parts])
  return all(np.array_equal(a, b) for a, b in zip(take(one), take(other), strict=True))


@pytest.mark.full
def test_copy_freeze_and_a_resume_at_the_boundary(rich_store, tmp_path):
  c = config()
  run = setup.make_run(c, rich_store, jax.devices()[:1])
  assert run.timeline.lengths == (2, 2)
  fresh = jax.device_get(first_state.initial_state(run).variables['params'])
  state = advance(run, first_state.initial_state(run), 0, 2)
  middle = jax.device_get(state.variables['params'])
  assert same(fresh, middle, (*JUDGE, 'rtd'))
  assert not any(same(fresh, middle, (part,)) for part in GENERATOR)

  kept = checkpoints_lib.Checkpoints(tmp_path, 1, c.best)
  phase, index = run.at(2)
  kept.save(2, state, dict(fed_sha256=phase.batch_sha256(index)), wait=True)
  entered = run.phases[1].enter(state).variables['params']
  assert same(dict(a=entered['discriminator']), dict(a=middle['generator_net']), 'a')
  assert same(dict(a=entered['embeddings']), dict(a=middle['generator_embeddings']), 'a')
  assert same(entered, middle, (*GENERATOR, 'rtd'))

  end = advance(run, state, 2, 4)
  params = jax.device_get(end.variables['params'])
  assert same(params, middle, GENERATOR)
  assert not any(same(params, entered, (part,)) for part in (*JUDGE, 'rtd'))
  done, restored, _ = kept.restore(run.abstract)
  kept.close()
  resumed = advance(setup.make_run(c, rich_store, jax.devices()[:1]), restored, done, 4)
  jax.tree.map(np.testing.assert_array_equal, resumed, end)
