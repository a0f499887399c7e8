"""Accumulation, denominators and row splitting, on an objective small enough to check by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from mutation import mutation

from bertjax import sharding
from bertjax.train import step as step_lib
from bertjax.types import Context, Objective, Out, Term

mutation('weights[name] > 0, term.total / safe', 'weights[name] > 0, term.total / term.weight')
mutation(
  'parts = x.reshape((x.shape[0] // count, count) + x.shape[1:])\n'
  '    return jnp.swapaxes(parts, 0, 1)',
  'return x.reshape((count, x.shape[0] // count) + x.shape[1:])',
)

PLUS = 0.5
DESCEND = optax.GradientTransformationExtraArgs(
  optax.init_empty_state,
  lambda updates, state, params, *, rate: (jax.tree.map(lambda u: -rate * u, updates), state),
)


def objective(scale=1.0):
  """loss = sum w * (a x) over rows / (sum w + PLUS); carry counts the batches a row has seen."""

  def loss(variables, carry, batch, ctx):
    total = jnp.sum(batch['w_B'] * variables['params']['a'] * batch['x_B'])
    seen = carry + 1
    rows = Term(jnp.sum(batch['row_B'] * batch['x_B']), jnp.sum(batch['w_B']))
    return Out(dict(main=Term(total, jnp.sum(batch['w_B']), scale, PLUS), rows=rows), seen)

  carry = lambda batch: jnp.zeros(batch['x_B'].shape)
  return Objective(lambda key, batch: None, loss, lambda *a: {}, carry, lambda batch: 0.0)


def accumulated(x, w, count, scale=1.0):
  batch = step_lib.with_rows(dict(x_B=jnp.asarray(x), w_B=jnp.asarray(w)))
  ctx = Context(jax.random.key(0), jnp.int32(0), True)
  variables = dict(params=dict(a=jnp.float32(2.0)))
  carry = jnp.arange(len(x), dtype=jnp.float32)
  return step_lib.accumulate(objective(scale), variables, carry, batch, ctx, count)


@pytest.mark.parametrize('count', [1, 4])
def test_the_loss_is_divided_once_by_the_global_weight(count):
  rng = np.random.default_rng(1)
  x, w = rng.normal(size=8).astype(np.float32), rng.random(8).astype(np.float32)
  grads, loss, sums, out = accumulated(x, w, count)
  expected = (w * x).sum() / (w.sum() + PLUS)
  np.testing.assert_allclose(grads['a'], expected, rtol=1e-6)
  np.testing.assert_allclose(loss, 2 * expected, rtol=1e-6)
  np.testing.assert_allclose(sums['main'][1], w.sum(), rtol=1e-6)
  np.testing.assert_allclose(sums['rows'][0], (np.arange(8) * x).sum(), rtol=1e-6)
  np.testing.assert_array_equal(out.carry, np.arange(8) + 1)  # rows come back in their order


def test_a_batch_without_weight_trains_nothing_and_stays_finite():
  grads, loss, _, _ = accumulated(np.ones(4, np.float32), np.zeros(4, np.float32), 2)
  assert float(loss) == 0.0 and float(grads['a']) == 0.0


def test_scale_multiplies_a_term_and_zero_makes_it_a_metric():
  x, w = np.ones(4, np.float32), np.ones(4, np.float32)
  one, fifty = accumulated(x, w, 2)[0]['a'], accumulated(x, w, 2, scale=50.0)[0]['a']
  np.testing.assert_allclose(fifty, 50 * one, rtol=1e-6)


def test_row_r_goes_to_part_r_mod_n_and_comes_back():
  x = jnp.arange(24).reshape(12, 2)
  parts = step_lib.split_rows(dict(x=x), 4)['x']
  assert parts[1, :, 0].tolist() == [2, 10, 18]  # rows 1, 5, 9
  np.testing.assert_array_equal(step_lib.join_rows(dict(x=parts))['x'], x)


def test_the_step_counts_and_reports_the_learning_rate_it_used():
  tx = DESCEND
  train = step_lib.make_train_step(objective(), tx, 'main', 1)
  params = dict(a=jnp.float32(2.0))
  state = step_lib.State(
    jnp.int32(3), dict(params=params), tx.init(params), dict(main=jnp.zeros(4))
  )
  new, metrics = train(state, dict(x_B=jnp.ones(4), w_B=jnp.ones(4)), 0, 0.25)
  assert int(new.step) == 4 and float(metrics['lr']) == 0.25
  np.testing.assert_allclose(new.variables['params']['a'], 2.0 - 0.25 * 4 / 4.5, rtol=1e-6)


def mean_kept(w, microbatches, devices):
  """The mean of 0, 1, .. by w that a step writes into a variable, which was 7 before."""
  plain = objective()

  def loss(variables, carry, batch, ctx):
    totals, weights = dict(mean=jnp.sum(batch['w_B'] * batch['x_B'])), dict(mean=batch['w_B'].sum())
    return plain.loss(variables, carry, batch, ctx)._replace(updates=dict(kept=(totals, weights)))

  step = step_lib.make_train_step(plain._replace(loss=loss), DESCEND, 'main', microbatches)
  batch = dict(x_B=np.arange(len(w), dtype=np.float32), w_B=np.asarray(w, np.float32))
  variables = dict(params=dict(a=jnp.float32(2.0)), kept=dict(mean=jnp.float32(7.0)))
  carry = dict(main=jnp.zeros(len(w)))
  state = step_lib.State(jnp.int32(0), variables, DESCEND.init(variables['params']), carry)
  mesh = sharding.make_mesh(dict(data=devices), jax.devices()[:devices])
  with jax.set_mesh(mesh):
    new, _ = jax.jit(step)(state, sharding.put_batch(batch, mesh), 0, 0.25)
  shards = new.variables['kept']['mean'].addressable_shards
  assert len(shards) == devices
  (value,) = {float(shard.data) for shard in shards}
  return value


@mutation(
  'return jax.tree.map(jnp.add, total, (grads, loss, sums, updates)), carry',
  'return (*jax.tree.map(jnp.add, total[:3], (grads, loss, sums)), updates), carry',
)
@mutation('*everywhere((loss, sums, out.updates))', '*everywhere((loss, sums)), out.updates')
@pytest.mark.parametrize('microbatches, devices', [(1, 4), (4, 1), (2, 4)])
def test_an_update_is_divided_once_by_the_global_weight(microbatches, devices):
  w = np.arange(16) % 3
  assert mean_kept(w, microbatches, devices) == np.float32((w * np.arange(16)).sum() / w.sum())


@mutation('jnp.where(weight > 0, total / weight, old)', '(total / weight)')
def test_an_update_without_weight_leaves_the_variable_as_it_was():
  assert mean_kept(np.zeros(16), 2, 1) == 7.0


def trained(batches, **options):
  """The states after each batch, from a state whose optimizer counts updates."""
  tx = optax.chain(optax.scale_by_adam(), DESCEND)
  step = step_lib.make_train_step(objective(), tx, 'main', 1, **options)
  params = dict(a=jnp.float32(2.0))
  state = step_lib.State(
    jnp.int32(0), dict(params=params), tx.init(params), dict(main=jnp.zeros(4))
  )
  states, found = [state], []
  for index, value in enumerate(batches):
    batch = dict(x_B=jnp.full(4, value, jnp.float32), w_B=jnp.ones(4))
    state, metrics = jax.jit(step)(state, batch, 0, 0.1 + index)
    states.append(state)
    found.append(metrics)
  return states, found


@mutation('jnp.where(fine, x, y)', 'jnp.where(fine | (x.ndim == 0), x, y)')
@pytest.mark.parametrize('bad', [np.nan, np.inf])
def test_a_step_that_is_not_finite_trains_nothing_but_counts(bad):
  states, found = trained([1.0, bad, 1.0], skip_nonfinite=True)
  assert [bool(each['skipped']) for each in found] == [False, True, False]
  jax.tree.map(np.testing.assert_array_equal, states[2], step_lib.passed_over(states[1]))
  assert int(states[2].step) == 2 and int(states[2].opt_state[0].count) == 1
  assert states[2].carry['main'][0] == 1


def test_a_step_that_is_finite_is_the_same_where_others_may_be_skipped():
  plain, _ = trained([1.0, 2.0])
  guarded, _ = trained([1.0, 2.0], skip_nonfinite=True)
  jax.tree.map(np.testing.assert_array_equal, plain[-1], guarded[-1])
