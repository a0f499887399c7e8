"""Phases whose losses are summed: a step of them is the sum of a step of each."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mutation import mutation
from systems import tiny

from bertjax.examples import loader
from bertjax.train import first_state, setup
from bertjax.train import step as step_lib
from bertjax.types import Context

FACTORS = {'phases.mrtd.summed': 2.0, 'phases.trtd.summed': 0.5}
CTX = Context(jax.random.key(3), jnp.int32(5), train=True)


@pytest.fixture(scope='module')
def run(rich_store):
  """XLM-E, dropout and the generator's draws on, with factors that tell its losses apart."""
  return setup.make_run(tiny('xlm_e', **FACTORS), rich_store, jax.devices()[:1])


@pytest.mark.full
@mutation('scaled(out.terms, factor)', 'scaled(out.terms, factors[0])')
@mutation("row_B=batch['row_B'] + before", "row_B=batch['row_B']")
@mutation('terms[name] = scaled', 'terms["mrtd"] = scaled')
def test_the_gradient_is_the_sum_of_the_gradients_of_the_phases(run):
  (phase,) = run.phases
  state = first_state.initial_state(run)
  rows = run.config.batch_size

  def own_loss(params, number, part):
    """A phase's loss as its objective says it, rows numbered after those of the phases before."""
    row_B = np.arange(rows * number, rows * (number + 1), dtype=np.int32)
    batch = dict(loader.Batches(part.examples, rows).at(0)[0], row_B=row_B)
    variables = dict(state.variables, params=params)
    terms = part.objective.loss(
      variables, part.objective.carry(part.template), batch, CTX
    ).terms.values()
    return sum(t.scale * t.total / (t.weight + t.plus) for t in terms if t.scale)

  params, expected, losses = state.variables['params'], [], []
  for number, (part, factor) in enumerate(zip(run.parts, FACTORS.values(), strict=True)):
    value_and_grad = jax.jit(jax.value_and_grad(lambda p, n=number, of=part: own_loss(p, n, of)))
    loss, grads = value_and_grad(params)
    losses.append(factor * float(loss))
    expected.append(jax.tree.map(lambda g, factor=factor: factor * np.asarray(g), grads))
  batch = step_lib.with_rows(phase.batches.at(0)[0])
  carry = state.carry[phase.name]
  found, loss, _, _ = jax.jit(
    lambda variables: step_lib.accumulate(phase.objective, variables, carry, batch, CTX, 1)
  )(state.variables)
  np.testing.assert_allclose(float(loss), sum(losses), rtol=1e-6)
  summed = [np.sum(both, 0) for both in zip(*map(jax.tree.leaves, expected), strict=True)]
  largest = max(np.abs(grad).max() for grad in summed)  # that of a key's bias is 0 but for rounding
  for mine, grad in zip(jax.tree.leaves(found), summed, strict=True):
    np.testing.assert_allclose(mine, grad, rtol=1e-4, atol=1e-7 * largest)


@mutation('key: self._parts[key].at(own, hosts)', "key: self._parts['mrtd'].at(own, hosts)")
@mutation('      counts.update(more)\n', '      counts = counts or more\n')
def test_a_batch_has_a_batch_of_each_phase(run):
  (phase,), rows = run.phases, run.config.batch_size
  batch, counts = phase.next_batch(0)
  real = predicted = 0
  for part in run.parts:
    own = loader.Batches(part.examples, rows).at(0)[0]
    for name, value in own.items():
      np.testing.assert_array_equal(batch.pop(f'{part.name}/{name}'), value)
    real += np.count_nonzero(own['example_BT'])
    predicted += np.count_nonzero(own['weight_BP'])
  assert not batch and (counts['real'], counts['predicted']) == (real, predicted)
