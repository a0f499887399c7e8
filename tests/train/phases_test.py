"""A batch that grows by phases, under one schedule: ModernBERT's warm-up of the batch."""

import jax
import numpy as np
import optax
import pytest
import systems
from mutation import mutation

from bertjax.train import first_state, setup

SIZES = ((4, 32), (6, 32), (8, 64))  # rows and tokens of a row
SCHEDULE = dict(
  name='warmup_stable_decay', peak=1e-3, warmup_steps=2, decay_steps=3, total_steps=6,
  end_ratio=0.1,
)  # fmt: skip


def growing(store, **own):
  """A run of three phases of two steps."""
  c = systems.tiny('roberta', total_steps=6)
  c.optimizer.schedule = SCHEDULE
  c.phases = {
    f'batch{i}': dict(share=1.0, batch_size=rows, length=length, **own.get(f'batch{i}', {}))
    for i, (rows, length) in enumerate(SIZES)
  }
  return setup.make_run(c, store, jax.devices()[:1])


@pytest.mark.full
@mutation('self._rate(state.step)', 'self._rate(state.step % 2)')
def test_one_schedule_runs_on_through_batches_and_lengths_that_grow(rich_store):
  """The clock is the step of the run."""
  run = growing(rich_store)
  state, rates = first_state.initial_state(run), []
  for step in range(6):
    number, index = run.timeline.at(step)
    phase = run.phases[number]
    assert (number, index) == divmod(step, 2)
    if not phase.takes(phase.template):
      phase.compile(run.abstract)
    batch, _ = phase.next_batch(index)
    assert batch['token_BT'].shape == SIZES[number]
    state, found = phase.train(state, batch)
    rates.append(float(found['lr']))
  root = lambda part: 1e-4 + 9e-4 * (1 - part**0.5)
  np.testing.assert_allclose(rates, [0, 5e-4, 1e-3, 1e-3, root(1 / 3), root(2 / 3)], rtol=1e-5)
  assert int(optax.tree.get(state.opt_state, 'count')) == 6  # Adam's


def test_a_phase_of_its_own_seed_does_not_read_the_rows_of_the_phase_before(rich_store):
  """Every phase counts its rows from 0, so those that differ in the batch alone read the same."""
  rows = lambda run, phase: run.phases[phase].next_batch(0)[0]['token_BT'][:4]
  again = growing(rich_store)
  np.testing.assert_array_equal(rows(again, 0), rows(again, 1))
  anew = growing(rich_store, batch1=dict(seed=1))
  assert not np.array_equal(rows(anew, 0), rows(anew, 1))
